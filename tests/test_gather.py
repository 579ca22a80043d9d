"""Runs that other clones made become part of a folder of results, or are refused."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import dry_runs
import pytest
import workflow

from fedlib import seals
from fedlib.cli import arguments, gather, keep
from fedlib.errors import ConfigError, DataError
from fedlib.report import packs
from fedlib.results import RunResult
from fedlib.workflow import command
from fedlib.workflow.declarations import Training
from fedlib.workflow.plan import Plan

RESULTS = "results/demo-smoke"
RUNS, TABLE = "runs/pfedmm/digits", f"{RESULTS}/tables/pfedmm/main.csv"
HALVES = ("fedavg", "fedem")
pytestmark = pytest.mark.slow  # they need a finished workflow


@pytest.fixture
def halves(finished, tmp_path):
    """Two folders of results with the runs of a method each, without weights."""
    for label in HALVES:
        shutil.copytree(finished / RESULTS / RUNS / label, tmp_path / label / RUNS / label)
        for state in (tmp_path / label).rglob("state.pt"):
            state.unlink()
    return [tmp_path / label for label in HALVES]


@pytest.fixture
def whole(finished, tmp_path, monkeypatch):
    """A copy of the checkout with the shards, in which nothing was trained."""
    folder = workflow.copy_checkout(tmp_path / "whole")
    for part in ("data/raw", f"{RESULTS}/shards"):
        shutil.copytree(finished / part, folder / part)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(gather.locks, "hold_folder", lambda **_: None)
    return folder


def gathered(*sources, options=()) -> int:
    """The exit code of `gather` here."""
    args = arguments.read(["gather", *workflow.smoke(), *options, "--", *map(str, sources)])
    return command.run(lambda: gather.main(args))


def run_of(half: Path) -> Path:
    """The folder of one of its runs."""
    return half / RUNS / half.name / "seed0"


def test_two_halves_become_what_one_place_makes_and_nothing_is_trained(
    finished, halves, whole, capsys
):
    workflow.mark_interrupted(whole, f"{RESULTS}/{RUNS}/fedem/seed1/evaluation.h5")
    assert gathered(*halves) == 0
    code, told = workflow.dry_run(whole, workflow.smoke())
    assert code == 0, told
    assert {job.rule for job in dry_runs.parse(told)} == {"metrics", "table", "figure", "report"}
    done = workflow.snakemake(whole, TABLE, *workflow.smoke())
    assert done.returncode == 0, done.stdout[-3000:]
    assert (whole / TABLE).read_bytes() == (finished / TABLE).read_bytes()
    times = {path: path.stat().st_mtime_ns for path in whole.rglob("*.h5")}
    capsys.readouterr()
    assert gathered(*halves) == 0  # again, which changes nothing
    assert "runs: 4 here already" in capsys.readouterr().out
    assert times == {path: path.stat().st_mtime_ns for path in whole.rglob("*.h5")}
    (whole / RESULTS / RUNS / "fedem/seed1/evaluation.h5").unlink()
    _, told = workflow.dry_run(whole, workflow.smoke())
    trained = [job.wildcards for job in dry_runs.parse(told) if job.rule == "train"]
    assert [(one["label"], one["seed"]) for one in trained] == [("fedem", "1")]  # for its weights


def changed(path: Path, **changes) -> None:
    """Write a result again with other contents, sealed."""
    result = RunResult.load(path)
    for name, value in changes.items():
        old = getattr(result, name)
        changes[name] = {**old, **value} if isinstance(old, dict) else value
    replace(result, **changes).save(path)


def damage(run: Path) -> None:
    content = (run / "history.h5").read_bytes()
    (run / "history.h5").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


REFUSED = {
    "damaged": (damage, "history.h5 is truncated or corrupted"),
    "of another specification": (
        lambda run: changed(run / "history.h5", spec={"rounds": 3}),
        r"history.h5 is refused: rounds is 3 there and 2 here",
    ),
    "evaluated otherwise": (
        lambda run: changed(run / "evaluation.h5", spec={"predictions": ["auc"]}),
        r"evaluation.h5 is refused: predictions is \['auc'\] there and \[\] here",
    ),
    "on other shards": (
        lambda run: changed(run / "history.h5", provenance={"manifest_sha256": "ab"}),
        r"history.h5 is refused: manifest_sha256, of the shards, is ab there and \w{64} here",
    ),
    "of older code": (
        lambda run: changed(run / "history.h5", provenance={"code": "0" * 16}),
        r"history.h5 is refused: the digest of the code is 0{16} there and \w{16} here$",
    ),
    "of other inputs": (
        lambda run: changed(run / "evaluation.h5", provenance={"inputs_sha256": "0" * 64}),
        r"evaluation.h5 is refused: the digest of its inputs is 0{64} there",
    ),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_what_differs_is_refused_in_a_line_and_the_others_are_taken(
    halves, whole, capsys, change, message
):
    change(run_of(halves[0]))
    assert gathered(*halves) == 1
    told = capsys.readouterr()
    assert "runs: 3 taken" in told.out
    [line] = told.err.splitlines()
    assert re.search(message, line), line
    assert not (whole / RESULTS / RUNS / "fedavg/seed0").exists()


def test_a_tuned_run_is_taken_whose_training_alone_read_what_was_chosen(
    halves, whole, tmp_path, monkeypatch
):
    choice = tmp_path / "choice.json"
    choice.write_text("{}")
    monkeypatch.setattr(Plan, "choice", lambda plan, **run: [str(choice)])
    manifest = whole / RESULTS / "shards/pfedmm/digits.json"
    for run in (halves[0] / RUNS / "fedavg").iterdir():
        read = {"history.h5": choice, "evaluation.h5": run / "history.h5"}
        for name, file in read.items():
            changed(run / name, provenance={"inputs_sha256": seals.contents(manifest, file)})
    assert gathered(halves[0]) == 0


def test_a_tuned_run_without_its_tuning_is_refused_and_nothing_is_tuned(
    halves, whole, monkeypatch, capsys
):
    monkeypatch.setattr(Plan, "choice", lambda plan, **run: ["choice.json"])
    monkeypatch.setattr(Plan, "tuned", lambda plan, *files, **paper: ["choice.json"])
    monkeypatch.setattr(gather.run, "start", lambda step: pytest.fail(f"starts {step}"))
    assert gathered(halves[0]) == 1
    lines = capsys.readouterr().err.splitlines()
    said = "history.h5 is refused: choice.json is missing, as the tuning there is missing, too, "
    assert len(lines) == 2 and all(said in line for line in lines)


def test_two_results_of_a_run_are_an_error_that_names_both(halves, whole, tmp_path, capsys):
    shutil.copytree(halves[0], tmp_path / "second")
    other = tmp_path / "second" / RUNS / "fedavg/seed0/evaluation.h5"
    changed(other, bytes_up=RunResult.load(other).bytes_up + 1)
    assert gathered(*halves, tmp_path / "second") == 1
    [line] = capsys.readouterr().err.splitlines()
    here = f"{RESULTS}/{RUNS}/fedavg/seed0/evaluation.h5"
    assert line.endswith(f"{other} and {here} have different numbers: delete one of them")


def test_a_gathering_that_is_killed_leaves_no_run_without_a_history_and_goes_on(
    halves, whole, monkeypatch
):
    copy, copied = gather.files.atomic, []

    def until_killed(path):
        copied.append(path)
        if len(copied) == 2:  # the history of the first run
            raise KeyboardInterrupt
        return copy(path)

    monkeypatch.setattr(gather.files, "atomic", until_killed)
    assert gathered(*halves) == command.INTERRUPTED
    assert not [*(whole / RESULTS).rglob("history.h5")]
    assert gathered(*halves) == 0
    assert len([*(whole / RESULTS).rglob("history.h5")]) == 4


def test_a_folder_without_runs_is_told_so(whole, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert gathered(tmp_path / "empty") == 1
    assert "empty has no runs: FROM names folders of results" in capsys.readouterr().err


def kept(*words) -> None:
    """Keep pFedMM's results of this folder in the folder `kept`."""
    given = ["keep", "pfedmm", *workflow.smoke(), "--out", "kept", *map(str, words)]
    keep.main(arguments.read(given))


def test_what_is_kept_is_added_to_on_another_machine(finished, halves, whole, monkeypatch, capsys):
    monkeypatch.chdir(finished)
    kept("--out", whole / "kept")
    page = whole / "kept/pfedmm"
    tables = {path.name: path.read_bytes() for path in page.glob("*.csv")}
    packed = page / "pack" / packs.ARCHIVE
    content = packed.read_bytes()
    with packs.opened(page / "pack") as folder:
        assert len([*folder.glob("runs/pfedmm/digits/*/seed*/*.h5")]) == 8
        assert not [*folder.rglob("state.pt")]
    (page / "main.csv").unlink()
    monkeypatch.chdir(whole)
    assert gathered(halves[0]) == 0  # FedAvg alone is here
    kept("--config", "labels=[fedavg]")
    assert tables == {path.name: path.read_bytes() for path in page.glob("*.csv")}
    assert packed.read_bytes() == content
    capsys.readouterr()
    assert gathered("kept/pfedmm", options=["--config", "rounds=3"]) == 1
    first, *_ = capsys.readouterr().err.splitlines()
    place = "kept/pfedmm/pack/runs.tar.xz/runs/pfedmm/digits/fedavg/seed0"
    assert first == f"error: {place}/history.h5 is refused: rounds is 2 there and 3 here"
    packed.write_bytes(content[:-100])
    with pytest.raises(DataError, match=r"runs\.tar\.xz is damaged"):
        kept("--config", "labels=[fedavg]")
    packed.unlink()
    with pytest.raises(ConfigError, match="such as pfedmm/digits/fedem, and as a pack of an older"):
        kept("--config", "labels=[fedavg]")


def test_what_is_kept_is_added_to_with_other_seeds(finished, whole, monkeypatch, capfd):
    monkeypatch.chdir(finished)
    kept("--out", whole / "kept")
    monkeypatch.chdir(whole)
    every, missing = keep.trainings, Training("pfedmm", "digits", "fedavg", 1)
    monkeypatch.setattr(keep, "trainings", lambda pack: every(pack) - {missing})
    kept("--config", "labels=[fedem]", "seeds=[0]")
    assert "table main shows the seeds that all of its runs have: 0\n" in capfd.readouterr().out
    with packs.opened(whole / "kept/pfedmm/pack") as folder:
        runs = folder / "runs/pfedmm/digits"
        seeds = [*runs.glob("*/seed*")]
    assert [str(one.relative_to(runs)) for one in sorted(seeds)] == [
        *("fedavg/seed0", "fedem/seed0", "fedem/seed1")
    ]
