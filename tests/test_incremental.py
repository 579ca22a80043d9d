"""Change one thing in a finished run: exactly the right jobs run again."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys

import dry_runs
import pytest
import workflow

from fedlib.workflow import config
from fedlib.workflow.layout import STAGES
from fedlib.workflow.plan import Plan

pytestmark = pytest.mark.slow

PAPER = "pfedmm"
DECLARATION = f"fedlib/papers/{PAPER}/__init__.py"
PLAN = Plan(config.read([workflow.ROOT / "config.yaml", workflow.ROOT / workflow.SMOKE]))


def names(plan: Plan, *stages: str, **wildcards: object) -> set[str]:
    """The plan's jobs of these stages that have these wildcards: {"table pfedmm/main", ...}."""
    return {
        name(stage, job)
        for stage, job in plan.jobs()
        if stage in stages and all(job.get(key, value) == value for key, value in wildcards.items())
    }


def name(rule: str, wildcards: dict) -> str:
    job = "/".join(str(wildcards[key]) for key in STAGES[rule])
    return f"{rule} {job}{wildcards.get('replicate', '')}"


EXHIBITS = ("table", "figure", "report")
AFTER_RUNS = ("metrics", *EXHIBITS)
RUNS = ("train", "evaluate")
FEDEM = names(PLAN, *RUNS, label="fedem") | names(PLAN, *AFTER_RUNS)
ALL_RUNS = names(PLAN, *RUNS, *AFTER_RUNS)


@pytest.fixture
def folder(finished, tmp_path):
    """A clone of the finished run to change."""
    return workflow.clone(finished, tmp_path)


def would_run(folder, *arguments: str) -> set[str]:
    """What a dry run says that would run."""
    code, output = workflow.dry_run(folder, workflow.smoke(*arguments))
    assert code == 0, output
    jobs = dry_runs.parse(output)
    assert jobs or "Nothing to be done" in output, output
    return {name(job.rule, job.wildcards) for job in jobs}


def append(folder, file: str, text: str) -> None:
    with open(folder / file, "a", encoding="utf-8") as target:
        target.write(text)


def replace(folder, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text, f"{file} does not contain {old!r}"
    (folder / file).write_text(text.replace(old, new), encoding="utf-8")


def redeclare(folder, change: str) -> None:
    """Change what the paper declares by a statement about `paper`, using `replace` and `run`s."""
    append(
        folder,
        DECLARATION,
        f"""
from dataclasses import replace as _replace

_declare = declare


def declare(scale):
    paper = _declare(scale)
    return _replace(paper, {change})
""",
    )


def of_label(label: str, change: str) -> str:
    """A redeclaration of the runs with one label."""
    return (
        f"runs=tuple(_replace(run, {change}) if run.label == {label!r} else run "
        "for run in paper.runs)"
    )


# --- Nothing --------------------------------------------------------------------------------------


def test_a_finished_run_is_up_to_date(folder):
    assert would_run(folder) == set()


def test_a_checkout_that_touches_every_file_repeats_nothing(folder):
    for part in workflow.PARTS:
        for file in [folder / part, *(folder / part).rglob("*")]:
            os.utime(file)
    assert would_run(folder) == set()


def test_reformatting_every_module_repeats_nothing(folder):
    for file in [*folder.glob("fedlib/**/*.py"), *folder.glob("scripts/*.py")]:
        file.write_text(ast.unparse(ast.parse(file.read_text())))
    assert would_run(folder) == set()


def test_comments_and_docstrings_repeat_nothing(folder):
    for file in folder.glob("fedlib/**/*.py"):
        file.write_text('"""Another docstring."""\n# and a comment\n' + file.read_text())
    for file in ("Snakefile", "rules/train.smk", "rules/common.smk", "envs/train.yaml"):
        append(folder, file, "\n# a comment\n")
    assert would_run(folder) == set()


def test_how_to_compute_is_no_reason_to_compute_again(folder):
    given = "executor=loop", "device=auto", f"mirror={folder}"
    assert would_run(folder, "--config", *given) == set()


def test_the_order_of_the_configuration_repeats_nothing(folder):
    import yaml

    given = yaml.safe_load((folder / workflow.SMOKE).read_text())
    (folder / workflow.SMOKE).write_text(yaml.safe_dump(dict(reversed(given.items()))))
    assert would_run(folder) == set()


def test_a_new_method_repeats_nothing(folder):
    shutil.copy(folder / "fedlib/methods/fedavg.py", folder / "fedlib/methods/brand_new.py")
    replace(
        folder,
        "fedlib/methods/__init__.py",
        '"fedavg": "FedAvg"',
        '"fedavg": "FedAvg", "brand_new": "FedAvg"',
    )
    assert would_run(folder) == set()


def test_a_new_data_set_repeats_nothing(folder):
    data = "fedlib/data/sources"
    shutil.copy(folder / data / "digits.py", folder / data / "brand_new.py")
    replace(folder, f"{data}/__init__.py", '"digits"', '"brand_new", "digits"')
    assert would_run(folder) == set()


def test_a_new_partition_repeats_nothing(folder):
    data = "fedlib/data/partitions"
    shutil.copy(folder / data / "dirichlet.py", folder / data / "brand_new.py")
    old = '"dirichlet": "Dirichlet"'
    replace(folder, f"{data}/__init__.py", old, '"brand_new": "Dirichlet", ' + old)
    assert would_run(folder) == set()


def test_a_method_that_is_not_in_use_repeats_nothing(folder):
    append(folder, "fedlib/methods/local.py", "\nX = 1\n")
    assert would_run(folder) == set()


def test_parts_of_methods_that_are_not_in_use_repeat_nothing(folder):
    append(folder, "fedlib/engine/gossip.py", "\nX = 1\n")
    for file in folder.glob("fedlib/methods/parts/*.py"):
        if file.stem not in ("__init__", "settings"):  # which every method has checked by it
            append(folder, file, "\nX = 1\n")
    assert would_run(folder) == set()


def test_what_no_number_depends_on_repeats_nothing(folder):
    modules = ["errors", "files", "locks", "seals", "environment"]
    modules += ["run/calibrate", "run/checkpoint", "run/progress"]  # to measure, to keep, to tell
    files = [folder / "fedlib" / f"{module}.py" for module in modules]
    workflows = folder.glob("fedlib/workflow/*.py")
    for file in (*files, *(file for file in workflows if file.stem != "__init__")):
        append(folder, file, "\nX = 1\n")
    assert would_run(folder) == set()


def test_touching_inputs_repeats_nothing(folder):
    for file in (*PLAN.receipts(), *PLAN.manifests()):
        os.utime(folder / file)
    os.utime(folder / PLAN.path("shards", paper=PAPER, federation="digits"))
    assert would_run(folder) == set()


def test_shards_may_be_deleted_to_save_space(folder):
    (folder / PLAN.path("shards", paper=PAPER, federation="digits")).unlink()
    assert would_run(folder) == set()


def test_results_without_snakemake_s_records_are_trusted(folder):
    shutil.rmtree(folder / ".snakemake")
    assert would_run(folder) == set()


def test_a_folder_that_was_moved_is_up_to_date(folder, tmp_path_factory):
    moved = tmp_path_factory.mktemp("elsewhere") / "with a space"
    shutil.move(folder, moved)
    assert would_run(moved) == set()


# --- Code -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "file, again",
    [
        ("fedlib/methods/fedem.py", FEDEM),
        ("fedlib/methods/base.py", ALL_RUNS),
        ("fedlib/models/mlp.py", ALL_RUNS),
        ("fedlib/engine/traced.py", ALL_RUNS),  # each executor may have computed a run
        ("fedlib/engine/graphs.py", set()),  # loaded by name, for some runs on a GPU
        ("fedlib/run/cost.py", names(PLAN, "evaluate", *AFTER_RUNS)),
        ("scripts/train.py", ALL_RUNS),
        ("scripts/evaluate.py", names(PLAN, "evaluate", *AFTER_RUNS)),
        ("scripts/partition.py", names(PLAN, "partition") | ALL_RUNS),
        ("scripts/download.py", names(PLAN, *STAGES)),
        ("fedlib/data/sources/digits.py", names(PLAN, "partition") | ALL_RUNS),
        ("fedlib/data/partitions/dirichlet.py", names(PLAN, "partition") | ALL_RUNS),
        ("fedlib/data/partitions/hsu.py", set()),
        ("fedlib/run/progress.py", set()),
        ("fedlib/data/sources/mnist.py", set()),
        ("scripts/metrics.py", names(PLAN, *AFTER_RUNS)),
        ("scripts/table.py", names(PLAN, "table", "report")),
        ("scripts/figure.py", names(PLAN, "figure", "report")),
        ("fedlib/report/pages/as_html.py", names(PLAN, "report")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_module_repeats_the_jobs_that_can_reach_it(folder, file, again):
    append(folder, file, "\nX = 1\n")
    assert would_run(folder) == again


def test_a_template_repeats_the_report(folder):
    append(folder, "fedlib/report/pages/templates/report.css", "\nbody { color: red; }\n")
    assert would_run(folder) == names(PLAN, "report")


@pytest.mark.parametrize("stage", ["table", "figure"])
def test_a_kind_of_exhibit_repeats_the_exhibits_of_that_kind(folder, stage):
    exhibits = getattr(PLAN.papers[PAPER], stage + "s")
    kind = next(iter(exhibits.values())).kind
    append(folder, f"fedlib/report/{stage}s/{kind}.py", "\nX = 1\n")
    mine = {f"{stage} {PAPER}/{key}" for key, exhibit in exhibits.items() if exhibit.kind == kind}
    assert would_run(folder) == mine | names(PLAN, "report")


def test_the_command_of_a_rule_repeats_the_rule(folder):
    state = " --state {input.state:q} --history"
    replace(folder, "fedlib/workflow/shell.py", state, f" {state}")
    assert would_run(folder) == names(PLAN, "evaluate", *AFTER_RUNS)


# --- Declarations ---------------------------------------------------------------------------------


def test_a_hyper_parameter_repeats_the_runs_that_have_it(folder):
    redeclare(folder, of_label("fedem", "local={**run.local, 'lr': 0.123}"))
    assert would_run(folder) == FEDEM


def test_a_parameter_of_the_data_repeats_all_that_is_made_of_it(folder):
    redeclare(
        folder,
        "data=tuple(_replace(d, seed=99) for d in paper.data)",
    )
    assert would_run(folder) == names(PLAN, "partition") | ALL_RUNS


def test_the_title_of_a_run_repeats_no_training(folder):
    redeclare(folder, of_label("fedem", "title='FedEM!'"))
    paper = PLAN.papers[PAPER]
    others = {
        f"{stage} {PAPER}/{name}"
        for stage, exhibits in (("table", paper.tables), ("figure", paper.figures))
        for name, exhibit in exhibits.items()
        if "fedem" not in exhibit.labels
    }
    assert others == {f"{stage} {PAPER}/heterogeneity" for stage in ("table", "figure")}
    assert would_run(folder) == names(PLAN, *EXHIBITS) - others


def test_the_title_of_a_paper_repeats_the_report(folder):
    redeclare(folder, "title='Another title'")
    assert would_run(folder) == names(PLAN, "report")


def test_a_caption_repeats_its_exhibit(folder):
    first = next(iter(PLAN.papers[PAPER].tables))
    redeclare(
        folder,
        f"tables={{**paper.tables, {first!r}: _replace(paper.tables[{first!r}], caption='New.')}}",
    )
    assert would_run(folder) == {f"table {PAPER}/{first}"} | names(PLAN, "report")


def test_a_published_number_repeats_what_shows_it(folder):
    append(
        folder, f"fedlib/papers/{PAPER}/published.csv", "main,x,y,accuracy,1.0,percent,Table 0\n"
    )
    shown = {
        f"{stage} {PAPER}/{key}"
        for stage in ("table", "figure")
        for key in getattr(PLAN.papers[PAPER], stage + "s")
        if PLAN.published(stage, PAPER, key)
    }
    assert shown
    assert would_run(folder) == shown | names(PLAN, "report")


# --- A partition for every seed -------------------------------------------------------------------

OWN = "data=tuple(_replace(d, per_seed=True) for d in paper.data)"
SEED_0 = names(PLAN, *RUNS, seed=0)


def of_seed(seed: int, file: str) -> str:
    """Shards or manifest of what the runs of a seed train on."""
    return PLAN.path(file, paper=PAPER, federation="digits", replicate=f"/seed{seed}")


@pytest.fixture(scope="module")
def recut(tmp_path_factory):
    """A finished smoke run with a partition for every seed. Clone it to change it."""
    made = workflow.copy_checkout(tmp_path_factory.mktemp("recut"))
    redeclare(made, OWN)
    done = workflow.snakemake(made, *workflow.smoke())
    assert done.returncode == 0, done.stdout
    return made


def test_redrawing_the_partition_repeats_all_that_is_made_of_it(folder):
    redeclare(folder, OWN)
    cut = {f"partition {PAPER}/digits/seed{seed}" for seed in (0, 1)}
    assert would_run(folder) == cut | ALL_RUNS


def test_every_seed_trains_on_its_own_partition(recut):
    from fedlib import files
    from fedlib.results import RunResult

    assert would_run(recut) == set()
    manifests = [recut / of_seed(seed, "manifest") for seed in (0, 1)]
    told = [json.loads(manifest.read_text()) for manifest in manifests]
    assert [manifest["spec"]["replicate"] for manifest in told] == [0, 1]
    assert told[0]["digests"] != told[1]["digests"]
    for cell in PLAN.trainings():
        history = RunResult.load(recut / PLAN.path("history", **cell._asdict()))
        assert history.provenance["manifest_sha256"] == files.digest(manifests[cell.seed])
    assert not (recut / PLAN.path("manifest", paper=PAPER, federation="digits")).exists()


def test_another_seed_is_cut_and_trained_and_the_others_are_kept(recut):
    more = Plan(PLAN.config | {"seeds": [0, 1, 2]})
    expected = names(more, *RUNS, seed=2) | names(more, *AFTER_RUNS)
    found = would_run(recut, "--config", "seeds=[0,1,2]")
    assert found == expected | {f"partition {PAPER}/digits/seed2"}


def test_a_manifest_of_other_content_is_made_again_and_the_runs_of_its_seed(recut, tmp_path):
    folder = workflow.clone(recut, tmp_path)
    manifest = folder / of_seed(0, "manifest")
    content = json.loads(manifest.read_text())
    content["digests"]["y"] = "0" * 64
    manifest.write_text(json.dumps(content))
    expected = SEED_0 | names(PLAN, *AFTER_RUNS) | {f"partition {PAPER}/digits/seed0"}
    assert would_run(folder) == expected


def test_the_commands_by_hand_are_those_of_the_rules_where_seeds_have_partitions(recut):
    arguments = [sys.executable, "-m", "fedlib", "commands", "--configfile", workflow.SMOKE]
    told = subprocess.run(arguments, cwd=recut, capture_output=True, text=True, check=True).stdout
    by_hand = {line for line in told.splitlines() if line.startswith("python ")}
    code, output = workflow.dry_run(recut, workflow.smoke("--forceall", "--printshellcmds"))
    assert code == 0, output
    lines = re.findall(r"^Shell command: (python .*)", output, re.MULTILINE)
    lines = [re.sub(r" --code \w+| --gpus \d+| >> \S+ 2>&1$", "", line) for line in lines]
    assert {re.sub(" +", " ", line.strip()) for line in lines} == by_hand
    assert sum(of_seed(1, "shards") in line for line in by_hand) == 5  # cut, 2 runs, 2 evaluations


# --- Configuration --------------------------------------------------------------------------------


def test_another_seed_is_trained_and_the_others_are_kept(folder):
    more = Plan(PLAN.config | {"seeds": [0, 1, 2]})
    expected = names(more, *RUNS, seed=2) | names(more, *AFTER_RUNS)
    assert would_run(folder, "--config", "seeds=[0,1,2]") == expected


def test_fewer_runs_repeat_what_shows_them(folder):
    fewer = Plan(PLAN.config | {"labels": ["fedem"]})
    assert would_run(folder, "--config", "labels=fedem") == names(fewer, *AFTER_RUNS)


def test_other_rounds_train_again(folder):
    assert would_run(folder, "--config", "rounds=3") == ALL_RUNS


def test_another_tag_starts_afresh(folder):
    expected = names(PLAN, *STAGES) - names(PLAN, "download")
    assert would_run(folder, "--config", "tag=other") == expected


# --- Files ----------------------------------------------------------------------------------------


def test_a_deleted_table_is_made_again(folder):
    first = next(iter(PLAN.papers[PAPER].tables))
    (folder / PLAN.path("table_tex", paper=PAPER, table=first)).unlink()
    assert would_run(folder) == {f"table {PAPER}/{first}"} | names(PLAN, "report")


@pytest.mark.parametrize(
    "file, stages", [("state", RUNS), ("history", RUNS), ("evaluation", ("evaluate",))]
)
def test_a_deleted_file_of_a_run_is_missed_and_made_again(folder, file, stages):
    job = {"paper": PAPER, "federation": "digits", "label": "fedem", "seed": 1}
    (folder / PLAN.path(file, **job)).unlink()
    expected = names(PLAN, *stages, label="fedem", seed=1)
    assert would_run(folder, PLAN.path(file, **job)) == names(
        PLAN, stages[0], label="fedem", seed=1
    )
    assert would_run(folder) == expected | names(PLAN, *AFTER_RUNS)


def test_a_manifest_of_other_content_is_made_again_and_trained_on_again(folder):
    manifest = folder / PLAN.path("manifest", paper=PAPER, federation="digits")
    content = json.loads(manifest.read_text())
    content["digests"]["y"] = "0" * 64
    manifest.write_text(json.dumps(content))
    assert would_run(folder) == ALL_RUNS | names(PLAN, "partition")


def test_shards_that_come_out_unchanged_are_not_trained_on_again(folder):
    append(folder, "fedlib/data/sources/digits.py", "\nX = 1\n")
    done = workflow.snakemake(folder, *workflow.smoke("partitions"))
    assert done.returncode == 0, done.stdout
    assert would_run(folder) == set()


def test_the_manifest_is_small_enough_to_be_compared_by_content():
    """Snakemake compares files of up to 1 MB by content, larger ones by time."""
    import numpy as np

    from fedlib.federation import Federation, Split

    clients, classes = 4000, 62
    one = np.zeros(0, np.int64)
    empty = Split(one, np.zeros(clients + 1, np.int64))
    federation = Federation(
        x=np.zeros((0, 1), np.uint8),
        y=one,
        num_classes=classes,
        train=empty,
        val=empty,
        test=empty,
        group=np.zeros(clients, np.uint8),
        client_id=np.arange(clients),
    )
    text = json.dumps(federation.manifest(), indent=1, sort_keys=True)
    most = text.replace(" 0" * (classes - 1), " 00" * (classes - 1))
    assert len(most) < 1_000_000
