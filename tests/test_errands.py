"""What `make` asks for: checked before anything happens, and carried out without a shell."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedlib.errors import ConfigError
from fedlib.workflow import errands

ROOT = Path(__file__).resolve().parents[1]
GIVEN = {"CONFIG": "", "ARGS": "", "SCALE": "", "PAPER": "pfedmm", "WHAT": ""} | dict.fromkeys(
    ("FROM", "A", "B"), ""
)
# What follows the name of the program in the call of Snakemake that runs everything.
OPTIONS = "--cores 1 --rerun-triggers mtime code".split()


def read(target: str, **values: str) -> errands.Order:
    return errands.read(target, ROOT, GIVEN | values)


def steps(target: str, **values: str) -> list[str]:
    """Its steps as text, without the name of Python; of a workflow with what shows its results."""
    order = read(target, **values)
    runs = target in errands.SCALES and not order.is_preview
    commands = errands.steps(order) + ([errands.closing(order)] if runs else [])
    assert all(command[0] == sys.executable for command in commands)
    return [" ".join(command[1:]) for command in commands]


def test_a_target_cuts_the_shards_runs_and_shows():
    given = "--config scale=demo seeds=[1] labels=[fedem,pfedmm]"
    assert steps("demo", CONFIG="seeds=[1] labels=[fedem,pfedmm]") == [
        f"-m fedlib.workflow.console partitions {given}",
        f"-m fedlib.workflow.console {given}",
        "scripts/show_results.py demo pfedmm/main",
    ]


def test_what_is_shown_at_the_end_is_of_what_is_selected():
    order = {"CONFIG": "papers=[fedmix] federations=[two-shard-mnist] seeds=[0]"}
    # The main table of the paper, accuracy and traffic, is of other federations.
    assert steps("reproduce", **order)[-1] == (
        "scripts/show_results.py full fedmix/new_shard_by_autoencoders"
    )
    every = read("demo").plan.papers
    mains = [f"{name}/{next(iter(paper.tables))}" for name, paper in every.items()]
    assert steps("demo")[-1] == " ".join(["scripts/show_results.py demo", *mains])


@pytest.mark.parametrize(
    "target, scale",
    [("demo", "demo"), ("demo-all", "demo-all"), ("reduced", "reduced"), ("reproduce", "full")],
)
def test_each_target_has_its_scale_and_each_tag_its_folder(target, scale):
    *_, run, show = steps(target, CONFIG="tag=quick rounds=3")
    assert run == f"-m fedlib.workflow.console --config scale={scale} tag=quick rounds=3"
    assert show.startswith(f"scripts/show_results.py {scale}-quick ")


def test_options_of_snakemake_come_before_the_configuration():
    order = read("demo", ARGS=" ".join(OPTIONS), CONFIG="tag=a")
    for command in errands.steps(order):
        at = command.index("--cores")
        assert command[at : at + len(OPTIONS) + 3] == [*OPTIONS, "--config", "scale=demo", "tag=a"]


@pytest.mark.parametrize("option", ["-n", "-np", "--dry-run", "--dryrun"])
def test_a_preview_is_not_followed_by_a_report(option):
    assert len(steps("demo", ARGS=option)) == 2


def test_a_configuration_file_counts_for_folder_and_steps(tmp_path):
    file = tmp_path / "my own.yaml"
    file.write_text("tag: mine\n")
    order = read("demo", ARGS=f"--configfile '{file}' --cores 1")
    assert (order.plan.folder, order.options) == ("demo-mine", ["--cores", "1"])
    for command in errands.steps(order):
        assert command[command.index("--configfile") + 1] == str(file)


@pytest.mark.parametrize("given", ["seeds=[0, 1]", "seeds=[ 0 , 1 ] tag=a", "tag=a seeds=[0,\n1]"])
def test_brackets_keep_the_items_of_a_list_together(given):
    order = read("plan", CONFIG=given)
    assert order.plan.config["seeds"] == [0, 1]
    assert len(order.words) == 2 + ("tag" in given)


@pytest.mark.parametrize(
    "target, scale, better", [("demo", "reduced", "reduced"), ("reduced", "full", "reproduce")]
)
def test_a_scale_that_is_not_that_of_the_target_is_refused(target, scale, better):
    with pytest.raises(ConfigError, match=f"^make {target} is at .*={scale}; .*: make {better}$"):
        read(target, SCALE=scale)
    assert read("demo", SCALE="demo").plan.scale == "demo"


def test_slots_that_are_no_number_are_refused_before_snakemake_reads_them(monkeypatch):
    monkeypatch.setenv("FEDLIB_GPU_SLOTS", "x")
    with pytest.raises(ConfigError, match="FEDLIB_GPU_SLOTS must be a whole number .* got 'x'"):
        read("demo")


def test_list_passes_on_what_is_asked_for():
    assert steps("list", WHAT="methods 'mixture of'") == [
        "scripts/list.py methods mixture of --config scale=demo"
    ]


def test_quotes_keep_the_words_of_a_value_together():
    assert read("plan", CONFIG='seeds="0 1"').plan.config["seeds"] == [0, 1]


@pytest.mark.parametrize(
    "target, start",
    [
        ("calibrate", "scripts/calibrate.py --config scale=reduced"),
        ("keep", "scripts/keep_results.py fedmix --config scale=reduced"),
    ],
)
def test_the_other_targets_are_one_step_at_scale(target, start):
    assert steps(target, SCALE="reduced", PAPER="fedmix") == [start]


def test_a_plan_is_estimated_first():
    given = "--config scale=reduced seeds=[1]"
    assert steps("plan", SCALE="reduced", CONFIG="seeds=[1]") == [
        f"scripts/estimate.py {given}",
        f"scripts/plan.py {given}",
    ]


def test_a_budget_is_spent_before_anything_runs_and_all_steps_share_what_it_bought():
    estimate, *others, show = steps("reproduce", CONFIG="budget=10h seeds=[1]")
    assert estimate == "scripts/estimate.py --config scale=full budget=10h seeds=[1]"
    bought = "--configfile results/full/budget.json --config scale=full seeds=[1]"
    assert len(others) == 2 and all(step.endswith(bought) for step in others)
    assert show == "scripts/show_results.py full"


def test_kept_results_are_drawn_again_from_the_folder_that_is_named():
    values = {"FROM": "docs/results/a b", "ARGS": "--out x"}
    [step] = errands.steps(read("figures-from", **values))
    assert step[1:] == ["scripts/redraw.py", "--out", "x", "--", "docs/results/a b"]
    with pytest.raises(ConfigError, match="FROM names what is kept, such as FROM=docs/results"):
        steps("figures-from")


def test_two_folders_of_results_are_compared():
    [step] = errands.steps(read("compare", A="demo", B="-x y", WHAT="fedem loss"))
    assert step[1:] == ["scripts/compare.py", "--", "demo", "-x y", "fedem", "loss"]
    for given in ({}, {"A": "demo"}, {"B": "demo"}):
        with pytest.raises(ConfigError, match="A and B name folders of results, such as A=demo B"):
            steps("compare", **given)


def test_the_report_is_written_from_what_is_there(tmp_path, monkeypatch):
    order = read("report", SCALE="reduced")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="results/reduced has nothing to report yet; run the"):
        errands.steps(order)
    files = [f"table_{form}" for form in ("csv", "md", "tex", "json")]
    there = [order.plan.path(file, paper="fedmix", table="criteria") for file in files]
    for path in map(Path, [*there, order.plan.path("metrics", paper="fedmix")]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (command,) = errands.steps(order)
    assert command[1:3] == ["scripts/report.py", "--spec"]
    [paper] = json.loads(command[3])["papers"]
    assert paper["name"] == "fedmix" and not paper["figures"]
    assert [table["name"] for table in paper["tables"]] == ["criteria"]
    assert " ".join(command[4:]) == (
        "--md results/reduced/REPORT.md --html results/reduced/report.html"
        " --results results/reduced --figures figures/reduced"
    )


def test_snakemake_s_own_report_is_another_file():
    assert steps("report", SCALE="reduced", ARGS="--snakemake") == [
        "-m fedlib.workflow.console --report results/reduced/report-snakemake.html "
        "--config scale=reduced"
    ]


@pytest.mark.parametrize("given", ["--snakmake", "--snakemake --cores 1"])
def test_another_option_of_the_report_is_refused(given):
    with pytest.raises(ConfigError, match="ARGS: make report takes --snakemake or nothing, got"):
        errands.steps(read("report", ARGS=given))


NONSENSE = [
    ("CONFIG", "budget=10", "budget must be a number of minutes, hours or days, such as 30m"),
    ("CONFIG", "budget=0h", "2d, got '0h'"),
    ("CONFIG", "budget=-1h", "2d, got '-1h'"),
    ("CONFIG", "budget=1w", "2d, got '1w'"),
    (
        "CONFIG",
        "runs=pfedmm/digits/nobody",
        "at scale demo: pfedmm/digits/local, ",
    ),
    ("CONFIG", "tag=; touch x", "a configuration value is given as key=value, got 'touch'"),
    ("CONFIG", "tag=$(touch x)", r"got 'x\)'"),
    ("CONFIG", "tag=`touch`", "tag must consist of at most 40 lower-case letters and digits"),
    ("CONFIG", "tag=a/../../../x", "digits, got 'a/../../../x'"),
    ("CONFIG", "tag=*", r"digits, got '\*'"),
    ("CONFIG", "tag=" + "a" * 255, "at most 40"),
    ("CONFIG", "tag='a", 'CONFIG: No closing quotation in "tag=\'a"'),
    ("CONFIG", "seeds=[1,2", r"seeds must be null or a list of whole numbers, got '\[1,2'"),
    ("CONFIG", "labels=fedem]", r"labels must be null or a list of names, got 'fedem\]'"),
    ("CONFIG", "seeds=" + "1" * 26, r"seeds must be in \[0, 4294967295\]"),
    ("CONFIG", "raw=/etc/passwd", "raw must be a folder, got '/etc/passwd', which is a file"),
    ("CONFIG", "raw='{threads} b'", "raw must be a path without braces"),
    ("CONFIG", "raw=http://x", "raw must be a folder, got 'http://x'"),
    ("CONFIG", "mirror=ftp://x", r"mirror must be a folder or an address \(http://, "),
    ("CONFIG", "lables=fedem", "config: unknown 'lables'"),
    ("CONFIG", "scale=full", "the scale is given by the target or by SCALE"),
    ("ARGS", "--config tag=a", "give configuration values as CONFIG=..., not in ARGS"),
    ("ARGS", "--config=tag=a", "give configuration values as CONFIG=..., not in ARGS"),
    ("ARGS", "-C tag=a", "give configuration values as CONFIG=..., not in ARGS"),
    ("ARGS", "--configfile", "ARGS: .*expected at least one argument"),
    ("ARGS", "--configfile no.yaml", "cannot read no.yaml: No such file"),
    ("ARGS", "'", "ARGS: No closing quotation"),
    ("SCALE", "demo data", "scale: unknown 'demo data'; known: demo, demo-all, reduced, full"),
    ("SCALE", "../x", "scale: unknown '../x'"),
]


@pytest.mark.parametrize("name, value, message", NONSENSE)
@pytest.mark.parametrize("target", ["plan", "clean"])
def test_a_value_that_makes_no_sense_is_refused(target, name, value, message):
    with pytest.raises(ConfigError, match=message) as raised:
        read(target, **{name: value})
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfetag: a")
    with pytest.raises(ConfigError, match=f"{tmp_path}/x.yaml is not text in UTF-8"):
        read("demo", ARGS=f"--configfile {tmp_path}/x.yaml")


# -- cleaning -----------------------------------------------------------------------------


def content(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_clean_deletes_the_folders_of_one_scale_and_tag_and_nothing_else(tmp_path):
    for name in ("results/demo", "results/demo-a", "figures/demo-a", "data/raw"):
        (tmp_path / name / "x").mkdir(parents=True)
    (tmp_path / "results/demo-a/x/file").write_bytes(bytes(1_250_000))
    found = errands.made_folders(read("clean", CONFIG="tag=a").plan, tmp_path)
    assert [(str(path.relative_to(tmp_path)), errands.size(path)) for path in found] == [
        ("results/demo-a", "1.2 MB in 1 file"),
        ("figures/demo-a", "0.0 MB in 0 files"),
    ]
    errands.clean(found)
    assert content(tmp_path) == [
        *("data", "data/raw", "data/raw/x", "figures", "results", "results/demo"),
        "results/demo/x",
    ]


def test_clean_deletes_a_link_and_not_what_it_leads_to(tmp_path):
    (tmp_path / "disk/x").mkdir(parents=True)
    (tmp_path / "results").mkdir()
    (tmp_path / "results/demo").symlink_to(tmp_path / "disk")
    [link] = errands.made_folders(read("clean").plan, tmp_path)
    assert errands.size(link) == f"a link to {tmp_path / 'disk'}, which stays"
    errands.clean([link])
    assert content(tmp_path) == ["disk", "disk/x", "results"]


def test_raw_files_among_the_results_are_not_deleted(tmp_path):
    (tmp_path / "results/demo/raw").mkdir(parents=True)
    with pytest.raises(ConfigError, match="raw: the raw files in .*results/demo/raw are in "):
        errands.made_folders(read("clean", CONFIG="raw=results/demo/raw").plan, tmp_path)
    assert content(tmp_path) == ["results", "results/demo", "results/demo/raw"]


# -- make ---------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose .venv is the Python of the tests, with results that must stay."""
    folder = tmp_path / "checkout"
    for part in ("fedlib", "scripts"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("Makefile", "config.yaml", "requirements.lock"):
        shutil.copy2(ROOT / part, folder / part)
    (folder / ".venv/bin").mkdir(parents=True)
    python = folder / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    installed = subprocess.run(
        ["make", "-pn", "help"], cwd=folder, env=clean_environment(), capture_output=True, text=True
    )
    (folder / re.search(r"^STAMP := (\S+)$", installed.stdout, re.M)[1]).touch()
    for name in ("results/demo/x", "results/demo-a/x", "data/raw/x", "data/x", "demo/x"):
        (folder / name).mkdir(parents=True)
    (tmp_path / "x").mkdir()
    return folder


def clean_environment() -> dict:
    ours = {*GIVEN, "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "PYTHON", "TORCH"}
    return {name: value for name, value in os.environ.items() if name not in ours}


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    environment = clean_environment() | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        ["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
def test_make_says_that_a_python_is_not_used_where_there_is_one(checkout):
    told = make(checkout, "help", "PYTHON=python9").stdout.splitlines()
    assert told[0].startswith("PYTHON=python9 only makes .venv, which is there; to make it anew")
    assert told[1:] == make(checkout, "help").stdout.splitlines()


@pytest.mark.slow
def test_make_deletes_and_runs_nothing_for_a_value_that_makes_no_sense(checkout):
    before = content(checkout.parent)
    values = [f"{name}={value}" for name, value, _ in NONSENSE if "$" not in value]
    values += ["CONFIG=tag=$$(touch x)", "CONFIG=tag=$(shell touch x)", "CONFIG=$(error no)"]
    values += ["CONFIG=tag='; touch x'", "SCALE=$(shell touch x)"]
    for value in values:
        done = make(checkout, "clean", value)
        assert done.returncode == 2, value
        assert done.stderr.startswith("error: "), (value, done.stderr)
        assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 2, done.stderr
        assert content(checkout.parent) == before, value


@pytest.mark.slow
def test_make_clean_deletes_one_folder_of_results(checkout):
    done = make(checkout, "clean", "CONFIG=tag=a")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("results/demo-a: 0.0 MB in 0 files\nDeleted.\n")
    assert content(checkout / "results") == ["demo", "demo/x"]


@pytest.mark.slow
@pytest.mark.parametrize("answer, stays", [("n", True), ("", True), ("y", False)])
def test_who_sits_at_a_terminal_is_asked_before_anything_is_deleted(checkout, answer, stays):
    ours, theirs = os.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(
        [sys.executable, "scripts/workflow.py", "clean"],
        cwd=checkout,
        env=clean_environment(),
        stdin=theirs,
        capture_output=True,
        text=True,
    )
    for end in (ours, theirs):
        os.close(end)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("results/demo: 0.0 MB in 0 files\n")
    assert "Delete? [y/N]" in done.stdout + done.stderr
    assert (checkout / "results/demo").exists() == stays


@pytest.mark.parametrize("given", ["config=tag=a", "Seeds=1", "VENV=x", "unknown=1"])
def test_a_misspelt_variable_of_make_is_refused_with_those_there_are(given):
    done = make(ROOT, "-n", "help", given)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    name = given.partition("=")[0]
    assert f"unknown variable {name}; there are A ARGS B CONFIG FROM PAPER " in line


@pytest.mark.parametrize(
    "given", ["CONFIG=tag=a", "WHAT=methods", "A=demo", "B=x", "TEST_JOBS=1", "SHELL=/bin/sh"]
)
def test_a_variable_of_make_is_not_refused(given):
    assert make(ROOT, "-n", "help", given).returncode == 0


def test_of_a_lock_that_pip_cannot_satisfy_the_last_error_is_told(tmp_path):
    shutil.copy2(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.lock").write_text("numpy==99\n")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(
        """#!/bin/sh
        case "$*" in *--version*) exit 0;; esac
        printf 'Traceback:\\n  File x\\nERROR: Ignored\\nERROR: No matching numpy==99\\n' >&2
        exit 1
        """
    )
    python.chmod(0o755)
    done = make(tmp_path, "install", f"PYTHON={sys.executable}")
    assert done.returncode == 2
    first, second, _ = done.stderr.splitlines()  # the last is make's own
    assert first == "ERROR: No matching numpy==99"
    assert second.endswith("all that it said is in .venv/pip.log")
    assert "Traceback" in (tmp_path / ".venv/pip.log").read_text()
    assert not [*(tmp_path / ".venv").glob(".installed*")]
