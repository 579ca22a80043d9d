"""The command line, and what `make` asks of it: checked first, and carried out without a shell."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedlib.cli import arguments, make, run
from fedlib.errors import ConfigError
from fedlib.workflow import command
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT


def read(target: str, **values: str):
    """The arguments of the command for a target of the Makefile."""
    return make.read(target, make.DEFAULTS | values)


def plan(target: str, **values: str) -> Plan:
    return arguments.plan(read(target, **values))


def steps(target: str, **values: str) -> list[str]:
    """The processes of a run as text, without the name of Python."""
    args = read(target, **values)
    found = run.steps(args, arguments.plan(args))
    assert all(step[0] == sys.executable for step in found)
    return [" ".join(step[1:]) for step in found]


@pytest.mark.parametrize(
    "words, message",
    [
        (["no"], "invalid choice: 'no' .choose from 'run', 'plan'"),
        (["list", "--cores", "1"], "list does not know --cores"),
        (["spec"], "required: STAGE"),
    ],
)
def test_words_that_are_no_command_are_refused_in_a_line(words, message):
    with pytest.raises(ConfigError, match=message) as raised:
        arguments.read(words)
    assert "\n" not in str(raised.value)


def test_paths_are_those_of_the_folder_where_a_command_is_given(tmp_path):
    args = arguments.read(["figures-from", "a", "--out", "/b", "--configfile", "c"], tmp_path)
    assert [args.source, args.out, *args.configfile] == [tmp_path / "a", Path("/b"), tmp_path / "c"]


def test_an_option_that_is_given_again_adds_to_what_was_given():
    words = ["--configfile", "a", "-C", "tag=b", "--configfile", "c", "-C", "seeds=1"]
    args = arguments.read(["plan", *words])
    assert ([*map(str, args.configfile)], args.config) == (["a", "c"], ["tag=b", "seeds=1"])


def test_a_run_cuts_the_shards_and_then_makes_everything(tmp_path, monkeypatch):
    # A folder of results in which settings have been chosen would be another case.
    monkeypatch.setattr(run, "Path", tmp_path.joinpath)
    given = "--config scale=demo seeds=[1] labels=[fedem,pfedmm]"
    assert steps("demo", CONFIG="seeds=[1] labels=[fedem,pfedmm]") == [
        f"-m fedlib.workflow.console partitions {given}",
        f"-m fedlib.workflow.console {given}",
    ]


@pytest.mark.parametrize(
    "target, scale", [("demo", "demo"), ("reduced", "reduced"), ("reproduce", "full")]
)
def test_each_target_has_its_scale_and_each_tag_its_folder(target, scale):
    _, last = steps(target, CONFIG="tag=quick rounds=3")
    assert last == f"-m fedlib.workflow.console --config scale={scale} tag=quick rounds=3"
    assert plan(target, CONFIG="tag=quick").folder == f"{scale}-quick"


@pytest.mark.parametrize("option", ["-n", "-np", "--dry-run", "--dryrun"])
def test_a_dry_run_is_what_make_plan_is_for(option):
    with pytest.raises(ConfigError, match="make plan says what would run"):
        run.main(read("demo", ARGS=f"--cores 1 {option}"))


def test_a_configuration_file_counts_for_folder_and_steps(tmp_path):
    file = tmp_path / "my own.yaml"
    file.write_text("tag: mine\n")
    args = read("demo", ARGS=f"--configfile '{file}' --cores 1")
    assert (arguments.plan(args).folder, args.options) == ("demo-mine", ["--cores", "1"])
    for step in run.steps(args, arguments.plan(args)):
        assert step[step.index("--configfile") + 1] == str(file)


def test_brackets_and_quotes_keep_the_items_of_a_list_together():
    args = read("plan", CONFIG="seeds=[0,\n1] tag=a labels='fedem fedavg'")
    config = arguments.plan(args).config
    assert len(args.config) == 4 and config["seeds"] == [0, 1]
    assert config["labels"] == ["fedem", "fedavg"]
    assert read("list", WHAT="'one step'").what == "one step"


def test_a_scale_that_is_not_that_of_the_target_is_refused():
    with pytest.raises(ConfigError, match="^make reduced is at .*=full; .*, reproduce$"):
        read("reduced", SCALE="full")
    assert plan("demo", SCALE="demo").scale == "demo"


def test_slots_that_are_no_number_are_refused_before_snakemake_reads_them(monkeypatch):
    monkeypatch.setenv("FEDLIB_GPU_SLOTS", "x")
    with pytest.raises(ConfigError, match="FEDLIB_GPU_SLOTS must be a whole number .* got 'x'"):
        run.main(read("demo"))


def test_an_interrupted_step_says_that_the_same_command_goes_on(capsys):
    wait = "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(0.2)"
    with pytest.raises(SystemExit) as ended:
        run.start([sys.executable, "-c", wait])
    assert ended.value.code == command.INTERRUPTED
    assert "the same command goes on" in capsys.readouterr().err


def test_snakemake_is_told_of_a_gpu_that_cannot_be_used_if_jobs_run_here(monkeypatch):
    monkeypatch.setattr(run, "tell", lambda lines: None)
    monkeypatch.setattr(run.remarks, "count_clients", lambda plan: [])
    monkeypatch.setattr(run.gpu, "choose_device", lambda wanted: "cpu")
    for options, told in {"": True, "--workflow-profile profiles/slurm": False}.items():
        args, steps = read("demo", ARGS=options), []
        monkeypatch.setattr(run, "start", steps.append)
        run._run(args, arguments.plan(args))
        assert steps and all(("device=cpu" in step) is told for step in steps)


def test_other_targets_are_commands_at_scale_about_what_is_named():
    kept = read("keep", SCALE="reduced", PAPER="fedmix", ARGS="--replace")
    assert (kept.command, kept.paper, kept.config) == ("keep", "fedmix", ["scale=reduced"])
    assert kept.replace
    assert read("keep").paper == "pfedmm"
    assert read("list", WHAT="methods").what == "methods"
    drawn = read("figures-from", FROM="'docs/results/a b'", ARGS="--out x")
    assert (drawn.source, drawn.out) == (Path("docs/results/a b"), Path("x"))
    with pytest.raises(ConfigError, match="make figures-from needs FROM"):
        read("figures-from")


def test_a_budget_is_spent_before_anything_runs_and_all_steps_share_what_it_bought():
    estimate, *others = steps("reproduce", CONFIG="budget=10h seeds=[1]")
    assert estimate == "-m fedlib estimate --config scale=full budget=10h seeds=[1]"
    bought = "--configfile results/full/budget.json --config scale=full seeds=[1]"
    assert len(others) == 2 and all(step.endswith(bought) for step in others)
    *_, last = steps("reproduce", CONFIG="budget=10h runs=[pfedmm/emnist/fedavg]")
    assert last.endswith("--configfile results/full/budget.json --config scale=full")


NONSENSE = [
    ("CONFIG", "budget=10", "budget must be a number of minutes, hours or days, such as 30m"),
    ("CONFIG", "budget=0h", "2d, got '0h'"),
    ("CONFIG", "runs=pfedmm/digits/nobody", "nearest: pfedmm/digits/local, "),
    ("CONFIG", "tag=007", "not look like the number 007 or 1e3, got '007'"),
    ("CONFIG", "tag=4e12", "not look like the number 007 or 1e3, got '4e12'"),
    ("CONFIG", "tag=infinity", "not look like the number 007 or 1e3, got 'infinity'"),
    ("CONFIG", "tag=; touch x", "key=value, without blanks, got 'touch'"),
    ("CONFIG", "tag=a/../../../x", "digits, .*, got 'a/../../../x'"),
    ("CONFIG", "tag=" + "a" * 255, "at most 40"),
    ("CONFIG", "tag='a", "CONFIG: No closing quotation"),
    ("CONFIG", "raw=/etc/passwd", "raw must be a folder, got '/etc/passwd', which is a file"),
    ("CONFIG", "seeds=[1,2", r"seeds must be .* list of whole numbers, got '\[1,2'"),
    ("CONFIG", "raw='{threads} b'", "raw must be a path without braces"),
    ("CONFIG", "raw=2024", "and no number, got '2024'"),
    ("CONFIG", "mirror=-.5E+3", r"and no number, got '-\.5E\+3'"),
    ("CONFIG", "raw=http://x", "raw must be a folder, got 'http://x'"),
    ("CONFIG", "mirror=ftp://x", r"mirror must be a folder or an address \(http://, "),
    ("CONFIG", "scale=full", "the scale is given by the target or by SCALE"),
    ("ARGS", "--config=tag=a", "give configuration values as CONFIG=..., not in ARGS"),
    ("ARGS", "-Ctag=a", "give configuration values as CONFIG=..., not in ARGS"),
    ("ARGS", "-C tag=a", "give configuration values as CONFIG=..., not in ARGS"),
    ("ARGS", "--configfile no.yaml", "cannot read no.yaml: No such file"),
    ("ARGS", "--snakmake", "ARGS: plan does not know --snakmake"),
    ("SCALE", "demo data", "scale: unknown 'demo data'; known: demo, reduced, full"),
]


@pytest.mark.parametrize("name, value, message", NONSENSE)
def test_a_value_that_makes_no_sense_is_refused(name, value, message):
    with pytest.raises(ConfigError, match=message) as raised:
        plan("plan", **{name: value})
    assert "\n" not in str(raised.value)


# -- make ---------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose .venv is the Python of the tests."""
    folder = tmp_path / "checkout"
    for part in ("fedlib", "scripts"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("Makefile", "config.yaml", "requirements/main.lock"):
        (folder / part).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / part, folder / part)
    (folder / ".venv/bin").mkdir(parents=True)
    python = folder / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    installed = run_make(folder, "-pn", "help")
    (folder / re.search(r"^STAMP := (\S+)$", installed.stdout, re.M)[1]).touch()
    (tmp_path / "x").mkdir()
    return folder


def run_make(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    ours = {*make.DEFAULTS, "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "PYTHON", "TORCH"}
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return subprocess.run(
        ["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
def test_make_runs_nothing_for_a_value_that_makes_no_sense(checkout):
    before = {*checkout.parent.rglob("*")}
    values = ["CONFIG=tag=`touch`", "CONFIG=tag='; touch x'", "CONFIG=tag=$$(touch x)"]
    values += ["CONFIG=tag=$(shell touch x)", "CONFIG=$(error no)", "SCALE=$(shell touch x)"]
    for value in values:
        done = run_make(checkout, "plan", value)
        assert done.returncode == 2, value
        assert done.stderr.startswith("error: "), (value, done.stderr)
        assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 2, done.stderr
        assert {*checkout.parent.rglob("*")} == before, value


def test_a_misspelt_variable_of_make_is_refused_with_those_there_are():
    for given in ("config=tag=a", "VENV=x"):
        [line] = run_make(ROOT, "-n", "help", given).stderr.splitlines()
        name = given.partition("=")[0]
        assert f"unknown variable {name}; there are ARGS CONFIG FILE FROM PAPER " in line
    assert run_make(ROOT, "-n", "help", "CONFIG=tag=a").returncode == 0
