"""The workflow as a whole: checks of its text, of its errors, and of what happens to it."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import commands
import dry_runs
import pytest
import stages
import torch
import workflow
import yaml
from support import assert_same_result

from fedlib.cli import arguments as words_of
from fedlib.cli import keep as keeping
from fedlib.cli import spec
from fedlib.engine.device import total_memory
from fedlib.errors import ConfigError, DataError
from fedlib.files import write_text
from fedlib.results import RunResult
from fedlib.workflow import freshness, gpu
from fedlib.workflow.gpu import device, lease, slots_per_device, visible
from fedlib.workflow.plan import Plan

ROOT = workflow.ROOT
PAPER, LABEL = "pfedmm", "fedem"
PLAN = commands.smoke_plan()
JOB = {"paper": PAPER, "federation": "digits", "label": LABEL, "seed": 0}
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A copy of the checkout in which nothing was run. Read it, or clone it to change it."""
    return workflow.copy_checkout(tmp_path_factory.mktemp("fresh"))


def fedlib(folder, *arguments: str, **changes: str) -> subprocess.CompletedProcess:
    """What `python -m fedlib` does in another checkout."""
    given = {"cwd": folder, "env": workflow.environment(**changes)}
    return workflow.python("-m", "fedlib", *arguments, **given)


# --- Text -----------------------------------------------------------------------------------------


def test_the_oldest_snakemake_is_the_same_everywhere_and_knows_priorities_that_are_functions():
    oldest = re.search(r'^min_version\("(.*)"\)', (ROOT / "Snakefile").read_text(), re.MULTILINE)[1]
    assert "priority: turn(" in "".join(rules().values())
    assert tuple(map(int, oldest.split("."))) >= (9, 17)  # 9.16.3: "have to be numeric"
    tested = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]["snakemake"]
    assert tested["strategy"]["matrix"]["snakemake"] == [f"snakemake=={oldest}.0", "snakemake"]
    assert f'"snakemake>={oldest}"' in (ROOT / "pyproject.toml").read_text()


def rules() -> dict[str, str]:
    """Text of every rule by name."""
    text = "\n\n".join(file.read_text() for file in [ROOT / "Snakefile", *ROOT.glob("rules/*.smk")])
    parts = re.split(r"^rule (\w+):$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


GIVEN = {"spec": "spec_option", "code": "code"}


def test_jobs_are_given_a_specification_and_a_code_digest_and_nothing_else():
    """Snakemake compares params as a set of values: others could be swapped unnoticed.

    `script:` would repeat everything after a checkout, and `run:` cost seconds for each job.
    """
    for name, text in rules().items():
        if params := re.search(r"    params:\n((?: {8}.*\n)+)", text):
            lines = [line.strip() for line in params[1].splitlines()]
            assert lines == [f'{key}=ask(PLAN.{of}, "{name}"),' for key, of in GIVEN.items()]
        assert not re.search(r"^ {4}(script|run):", text, re.M)


def test_both_profiles_have_the_same_triggers():
    default, slurm = (
        yaml.safe_load((ROOT / f"profiles/{name}/config.yaml").read_text())
        for name in ("default", "slurm")
    )
    shared = ("rerun-triggers", "scheduler", "keep-going", "rerun-incomplete")
    assert {key: default[key] for key in shared} == {key: slurm[key] for key in shared}
    # Not of GPUs: a limit of 0 would clip what jobs ask Slurm for.
    assert "resources" not in slurm


# --- Errors ---------------------------------------------------------------------------------------


@slow
def test_a_file_that_no_run_makes_is_refused_and_a_wrong_configuration_without_a_traceback(fresh):
    path = PLAN.path("state", **JOB | {"label": "fedm"})
    known = "no run pfedmm/digits/fedm; this configuration has pfedmm/digits/"
    code, output = workflow.dry_run(fresh, workflow.smoke(path))
    assert code == 1 and known in output
    code, output = workflow.dry_run(fresh, workflow.smoke("--config", "lables=fedem"))
    assert code == 1 and "config: unknown 'lables'; known: scale, papers, seeds" in output
    assert "Traceback" not in output and len(output.splitlines()) <= 6


# --- Running --------------------------------------------------------------------------------------


@slow
def test_the_smoke_run_makes_every_table_figure_and_the_report(finished):
    assert [path for path in PLAN.targets() if not (finished / path).is_file()] == []
    said = finished.with_suffix(".log").read_text(encoding="utf-8")
    assert f"Report: {PLAN.path('report_html')} (open it in a browser)" in said


@pytest.fixture
def keep(monkeypatch):
    """Function that keeps results of a folder, with the configuration of the tests."""

    def kept(folder, out, *options: str) -> None:
        monkeypatch.chdir(folder)
        place = ["--out", str(Path(out) / PAPER)] if out else []
        given = ["--configfile", workflow.SMOKE, *place, *options]
        keeping.main(words_of.read(["keep", PAPER, *given]))

    return kept


@slow
def test_results_are_kept_with_every_number_and_figure_and_how_they_were_made(
    folder, tmp_path, keep
):
    out = tmp_path / "kept"
    stale, written = (out / PAPER / name for name in ("stale.png", "README.md"))
    write_text(stale, "")
    written.write_text("by hand")
    with pytest.raises(ConfigError, match=r"has stale\.png, which was not kept from runs; give "):
        keep(folder, out)
    keep(folder, out, "--replace")
    assert [path.name for path in out.iterdir()] == [PAPER]
    kept = {path.name for path in (out / PAPER).iterdir()}
    alone = {"effect_of_experts", "heterogeneity"}  # comparisons with one member here
    tables, figures = (
        {*x} - alone for x in (PLAN.papers[PAPER].tables, PLAN.papers[PAPER].figures)
    )
    assert kept == {
        "README.md",
        "REPORT.md",
        "pack",
        *(f"{name}.csv" for name in tables),
        *(f"{name}.{kind}" for name in figures for kind in ("pdf", "png")),
    }
    assert written.read_text() == "by hand"
    page = (out / PAPER / "REPORT.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]*\.(?:png|pdf))\)", page)
    assert len(links) == 2 * len(figures) and set(links) <= kept
    assert "Machines and versions" in page


@slow
def test_results_with_a_tag_do_not_replace_those_of_their_scale(folder, keep):
    keep(folder, None)
    assert (folder / "docs/results" / PAPER / "demo-smoke/REPORT.md").is_file()


@slow
def test_damaged_results_leave_what_is_kept_as_it_was(folder, tmp_path, keep):
    out = tmp_path / "kept"
    keep(folder, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    first = next(iter(PLAN.papers[PAPER].tables))
    damaged = folder / PLAN.path("table_csv", paper=PAPER, table=first)
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(DataError, match=f"{first}.json is not up to date"):
        keep(folder, out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@slow
def test_a_finished_workflow_says_so_in_a_line(folder):
    def demo():
        done = fedlib(folder, "make", "demo", ARGS=f"--configfile {workflow.SMOKE}")
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()[-1]  # the others say what is selected and left out

    assert demo() == f"Nothing to do: {PLAN.path('report_html')} is up to date."


@slow
@pytest.mark.parametrize(
    "variables, gpus",
    [
        ({"FEDLIB_GPU_SLOTS": "8"}, 1),  # a job asks for one, however many there are
        ({"FEDLIB_GPU_SLOTS": "", "CUDA_VISIBLE_DEVICES": "-1"}, 0),
    ],
)
def test_jobs_are_granted_a_gpu_where_there_is_one(fresh, variables, gpus):
    arguments = [PLAN.path("state", **JOB), *workflow.smoke("--config", "device=auto")]
    _, output = workflow.dry_run(fresh, [*arguments, "--printshellcmds"], **variables)
    assert set(re.findall(r"--gpus (\d+)", output)) == {str(gpus)}


@slow
def test_a_plan_lists_the_jobs_of_a_dry_run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / PLAN.path("state", **JOB)).unlink()
    (folder / PLAN.files("table_md")[0]).unlink()
    ours, other = (PLAN.path("evaluation", **JOB | {"seed": seed}) for seed in (0, 1))
    (folder / other).write_bytes((folder / ours).read_bytes())
    listed = freshness.list_open_jobs(PLAN, freshness.check(PLAN), freshness.RESULTS)
    planned = dry_runs.planned(folder)
    dry = Counter((job.rule, *sorted(job.wildcards.values())) for job in planned)
    assert Counter((x.stage, *sorted(map(str, x.job.values()))) for x in listed) == dry
    assert {"train", "evaluate", "metrics", "table", "report"} <= {x.stage for x in listed}


@slow
def test_the_commands_by_hand_are_those_of_the_rules(fresh):
    code, output = workflow.dry_run(fresh, workflow.smoke("--printshellcmds"))
    assert code == 0
    lines = re.findall(r"^Shell command: (python .*)", output, re.MULTILINE)
    lines = [re.sub(r" --code \w+| --gpus \d+| >> \S+ 2>&1$", "", line) for line in lines]
    of_rules = {re.sub(r" +", " ", line.strip()) for line in lines}
    assert of_rules == {commands.command(PLAN, stage, **job) for stage, job in PLAN.jobs()}


@slow
def test_a_job_that_loads_undeclared_code_fails_and_leaves_no_output(folder):
    with open(folder / f"fedlib/methods/{LABEL}.py", "a") as file:
        file.write("\n\n__import__('importlib').import_module('fedlib.methods.local')\n")
    state = PLAN.path("state", **JOB)
    done = workflow.snakemake(folder, state, *workflow.smoke())
    assert done.returncode == 1
    assert "undeclared code dependency fedlib.methods.local" in done.stdout
    assert "round 2/" not in done.stdout  # it is known after the first
    assert not (folder / state).exists()


# --- Interruptions --------------------------------------------------------------------------------


def assert_same(one: Path, other: Path) -> None:
    """Every number of two result files is the same; only the provenance may differ."""
    first, second = RunResult.load(one), RunResult.load(other)
    assert first.spec == second.spec
    assert_same_result(first, second)


LONG = ["rounds=null", f"set=[{LABEL}.rounds=40]"]


@pytest.fixture(scope="module")
def long_run(finished, tmp_path_factory):
    """An uninterrupted run of 40 rounds."""
    folder = workflow.clone(finished, tmp_path_factory.mktemp("long"))
    plan = Plan(PLAN.config | {"rounds": None, "set": [f"{LABEL}.rounds=40"]})
    line = commands.command(plan, "train", **JOB)
    with contextlib.chdir(folder):
        assert stages.run_here("train", shlex.split(line)[2:]) == 0
    return folder / HISTORY


def begin(folder, words: list[str], output=subprocess.DEVNULL, **changes: str) -> subprocess.Popen:
    """Python in a session of its own, which signals reach as those of a terminal do."""
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=workflow.environment(**changes),
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def start(folder, command: list[str], **changes: str) -> tuple[subprocess.Popen, int]:
    """Start the run of 40 rounds; the process, and its training job after its first checkpoint."""
    text = folder / "rules/train.smk"  # rounds are short: else there is no checkpoint yet
    often = "--checkpoint-every 3 --checkpoints {resources.checkpoints:q} --device"
    if often not in text.read_text():
        train = often.removeprefix("--checkpoint-every 3 ")
        text.write_text(text.read_text().replace(train, often))
    process = begin(folder, command, **changes)
    checkpoints = folder / PLAN.path("checkpoints", **JOB)
    lock = checkpoints / "lock"
    try:
        workflow.wait_for(lambda: (checkpoints / "checkpoint.json").exists() and lock.read_text())
        return process, int(lock.read_text().split()[0])
    except BaseException:
        process.kill()
        raise


HISTORY = PLAN.path("history", **JOB)
TRAINING = ["-m", "snakemake", "--nocolor", HISTORY, *workflow.smoke("--config", *LONG)]


def go_on(folder, wanted: str) -> None:
    """Make a file of the run of 40 rounds, whatever of it is there."""
    done = workflow.snakemake(folder, wanted, *workflow.smoke("--config", *LONG))
    assert done.returncode == 0, done.stdout


STOPPED = "the same command goes on from there"


def log_of(folder) -> str:
    """What the training of 40 rounds wrote."""
    return (folder / PLAN.path("train_log", **JOB)).read_text()


@slow
def test_a_run_that_is_stopped_and_then_left_alone_ends_with_the_same_bits(folder, long_run):
    process, job = start(folder, TRAINING)
    if sys.platform == "linux":
        assert "forkserver.py" in Path(f"/proc/{job}/cmdline").read_text()
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
    assert process.wait(120) != 0
    assert STOPPED in log_of(folder) or "done in" in log_of(folder), log_of(folder)
    if "done in" not in log_of(folder):
        process, _ = start(folder, TRAINING, FEDLIB_WARM="0")
        process.kill()  # its job runs on, and the next run takes over
        process.wait()
    go_on(folder, PLAN.path("evaluation", **JOB))
    assert "resuming after round" in log_of(folder)
    assert_same(folder / HISTORY, long_run)
    assert not (folder / PLAN.path("checkpoints", **JOB) / "checkpoint.json").exists()


@slow
def test_an_error_of_the_users_is_met_once_and_sigterm_ends_a_workflow_that_tries_again(
    fresh, tmp_path
):
    folder = workflow.clone(fresh, tmp_path)
    write_text(folder / "data/raw/mnist/raw/train-images-idx3-ubyte.gz", "not the official one")
    given = ["download_all", "--cores", "1", "--config", "scale=reduced", "papers=fedmix"]
    given += ["federations=two-shard-mnist"]
    done = workflow.snakemake(folder, *given)
    assert done.returncode == 1 and done.stdout.count("Error in rule download") == 1, done.stdout
    for _ in range(3):
        with (folder / "output").open("w") as output:
            words = ["-m", "snakemake", "--nocolor", *given, "--retries", "99"]
            process = begin(folder, words, output)
        workflow.wait_for(lambda: "Trying to restart" in (folder / "output").read_text())
        for _ in range(2):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            # By its signal where Snakemake met it in a function of resources.
            assert process.wait(60) in (1, -signal.SIGINT)
        finally:
            process.kill()


@slow
def test_a_second_workflow_in_the_folder_is_refused_and_the_first_one_ends_well(
    folder, long_run, monkeypatch
):
    monkeypatch.chdir(folder)
    values = {"CONFIG": f"{' '.join(LONG)} labels={LABEL}"}
    values["ARGS"] = f"--until train --configfile {workflow.SMOKE}"
    first, job = start(folder, ["-m", "fedlib", "make", "demo"], **values)
    try:
        os.kill(job, signal.SIGSTOP)  # so that it is there until all have tried
        other = fedlib(folder, "make", "demo", **values)
        assert other.returncode == 1
        assert re.fullmatch(r"(.* (is left out|are not shown).*\n)*", other.stdout)
        found = re.match(rf"error: ({folder} is in use by pid (\d+) on )", other.stderr)
        assert found, other.stderr
        message, holder = found.groups()
        os.kill(int(holder), 0)  # a process of the first one that is there
        assert f"(make demo CONFIG='{LONG[0]}" in other.stderr and other.stderr.count("\n") == 1
        for arguments in ([], ["--unlock"], ["--report", "all.html", "--report-after-run"]):
            done = workflow.snakemake(folder, *arguments, *workflow.smoke("--config", *LONG))
            assert done.returncode == 1
            assert message in done.stdout and "Traceback" not in done.stdout, done.stdout
        for look in ("--dry-run", "-S", "--lu"):  # looking is free
            done = workflow.snakemake(folder, look, *workflow.smoke("--config", *LONG))
            assert done.returncode == 0, done.stdout
        assert list((folder / ".snakemake/locks").iterdir())
        os.kill(job, signal.SIGCONT)
        assert first.wait(300) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(job, signal.SIGCONT)
        first.terminate()
        first.wait(60)
    assert_same(folder / HISTORY, long_run)


# --- GPUs -----------------------------------------------------------------------------------------

HOLD = """
import time
from fedlib.workflow.gpu import lease
with lease(["0", "1"]) as name:
    start = time.monotonic()
    time.sleep(0.1)
    print(name, start, time.monotonic(), flush=True)
"""


def test_no_two_jobs_have_the_same_gpu_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    jobs = [subprocess.Popen([sys.executable, "-c", HOLD], cwd=ROOT, **pipes) for _ in range(6)]
    spans, waited = {"0": [], "1": []}, []
    for job in jobs:
        done, told = job.communicate()
        name, start, end = done.split()
        spans[name].append((float(start), float(end)))
        waited.append(told.count("waiting for one of 2 GPU slots"))
    assert max(waited) == 1  # a line, and not one each time it looks
    for mine in map(sorted, spans.values()):
        assert all(end <= start for (_, end), (start, _) in zip(mine, mine[1:], strict=False))
    assert sum(map(len, spans.values())) == 6


def test_every_gpu_has_one_job_before_any_has_two_and_sees_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    with contextlib.ExitStack() as stack:
        names = [stack.enter_context(lease(["0", "1"], 2)) for _ in range(4)]
    assert names == ["0", "1", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    with lease(visible()):
        assert visible() == ("2",)
        monkeypatch.setenv("SLURM_LOCALID", "1")  # another task, which sees the same cards
        with lease(["2", "3"]):
            assert visible() == ("3",)
    assert visible() == ("2", "3")


def test_two_jobs_of_a_scheduler_may_be_given_cards_of_the_same_names(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    jobs = ("7", "0,1", "0"), ("7", "0,1", "1"), ("8", "0,1", "0"), ("8", "", "0"), ("9", "", "1")
    with contextlib.ExitStack() as stack:
        for number, given, name in jobs:  # two are given nothing, and see the cards of the node
            monkeypatch.setenv("SLURM_JOB_ID", number)
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
            assert stack.enter_context(lease(["0", "1"], wait=False)) == name


def test_visible_gpus_are_those_that_cuda_would_use(monkeypatch):
    known = {"": (), "-1": (), "0": ("0",), "1, 0": ("1", "0"), "0,-1,1": ("0",)}
    for value, names in known.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert visible() == names
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    nodes = ["/dev/nvidia5", "/dev/nvidiactl", "/dev/nvidia2", "/dev/nvidia-uvm"]
    monkeypatch.setattr(gpu.glob, "glob", lambda pattern: nodes)
    assert visible() == ("0", "1")


@pytest.mark.parametrize("given", [{"CUDA_VISIBLE_DEVICES": "0"}, {}])
def test_jobs_share_a_single_card_but_not_where_a_scheduler_gave_each_its_own(
    tmp_path, monkeypatch, capsys, given
):
    monkeypatch.setattr(gpu.glob, "glob", lambda pattern: ["/dev/nvidia0"])
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    jobs = [{}, {"PBS_JOBID": "7"}, {"PBS_JOBID": "8"}]
    jobs += [{"LSB_JOBID": "9", "LSB_JOBINDEX": x} for x in "12"]
    tasks = [("0", "0"), ("0", "1"), ("1", "0")]  # which `srun` may have given a card each
    jobs += [{"SLURM_JOB_ID": "9", "SLURM_STEP_ID": x, "SLURM_LOCALID": y} for x, y in tasks]
    for files, job in enumerate(jobs, start=1):
        own = {"FEDLIB_GPU_SLOTS": "3", **given, **job}
        monkeypatch.setattr(os, "environ", own)
        with device("auto", 1) as name:
            assert (name, own[gpu.SHARE]) == ("cpu", "3")
        assert gpu.SHARE not in own
        assert sum(path.is_file() for path in tmp_path.rglob("*")) == (files if given else 1)
    assert capsys.readouterr().err.count("cannot use GPU 0") == len(jobs)


def test_jobs_on_one_card_divide_its_memory(monkeypatch):
    card = SimpleNamespace(total_memory=80)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setenv(gpu.SHARE, "4")
    assert total_memory(torch.device("cuda")) == 20


def test_without_a_gpu_or_a_granted_one_auto_is_the_cpu_and_cuda_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # so a card would be used
    for cards, wanted, gpus in (("0,1", "auto", 0), ("0,1", "cpu", None), ("", "auto", 1)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", cards)
        with device(wanted, gpus) as name:
            assert name == "cpu"
    with pytest.raises(ConfigError, match="device is cuda, but this machine has no GPU"):
        device("cuda", 1).__enter__()


def test_where_pytorch_cannot_use_the_gpu_all_jobs_run_on_the_cpu(monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    for wanted, code, told in (("auto", 0, "auto"), ("cuda", 0, "cuda"), ("cpu", 1, "cpu")):
        answer = SimpleNamespace(returncode=code)
        monkeypatch.setattr(gpu.subprocess, "run", lambda *_, a=answer, **__: a)
        assert (gpu.choose_device(wanted), capsys.readouterr().out) == (told, "")
    assert gpu.choose_device("auto") == "cpu"
    assert "cannot use GPU 0" in capsys.readouterr().err
    for card, said in (("0", "GPU 0, .* cannot use it"), ("", "no GPU")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", card)
        with pytest.raises(ConfigError, match=f"device is cuda, but this machine has {said}"):
            gpu.choose_device("cuda")


def test_slots_are_spread_over_the_gpus(monkeypatch):
    for slots, per_device in (("", 2), ("2", 1), ("3", 2), ("8", 4), ("0", 1)):
        monkeypatch.setenv("FEDLIB_GPU_SLOTS", slots)
        assert slots_per_device(2) == per_device
    profile = (ROOT / "profiles/default/config.yaml").read_text("utf-8")
    assert f"str({gpu.JOBS_PER_CARD} * gpus)" in profile
    monkeypatch.setenv("FEDLIB_GPU_SLOTS", "many")
    with pytest.raises(ConfigError, match="must be a whole number of jobs, got 'many'"):
        slots_per_device(1)


# --- What would run -------------------------------------------------------------------------------


@slow
def test_what_would_run_is_told_with_reasons_and_times(folder):
    with open(folder / f"fedlib/methods/{LABEL}.py", "a") as file:
        file.write("\nX = 1\n")
    (folder / PLAN.path("state", **JOB | {"label": "fedavg"})).unlink()
    right = PLAN.path("evaluation", **JOB | {"label": "fedavg", "seed": 1})
    workflow.mark_interrupted(folder, right)  # its result is whole, so it is not repeated
    done = fedlib(folder, "plan", "--configfile", workflow.SMOKE)
    found = re.findall(r"^  (\w+) +(\d+)  +(?:\d\S* \w+ +)?(.*)$", done.stdout, re.M)
    assert ("train", "3", "2 code changed, 1 not there yet") in found, done
    assert ("evaluate", "3", "2 code changed, 1 follows from the above") in found
    assert ("metrics", "1", "follows from the above") in found
    assert re.search(r"^Estimated core time on .*: [\d.]+ (s|min), ", done.stdout, re.M)
    expected = Counter(job.rule for job in dry_runs.planned(folder))
    assert {stage: int(number) for stage, number, _ in found} == expected


def test_the_specification_of_a_stage_can_be_printed(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    given = ["--configfile", workflow.SMOKE]
    spec.main(words_of.read(["spec", "train", "pfedmm/digits/fedem/seed0", *given]))
    assert capsys.readouterr().out.strip() == PLAN.spec("train", **JOB)
    for words, message in (
        (["train", "pfedmm/digits/fedm/seed0"], "^train: unknown 'pfedmm/digits/fedm/seed0'; nea"),
        (["trian"], "STAGE: unknown 'trian'; known: download, partition, tune"),
    ):
        with pytest.raises(ConfigError, match=message):
            spec.main(words_of.read(["spec", *words]))
