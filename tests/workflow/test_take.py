"""Runs that were made elsewhere become part of a folder of results, or are refused."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import workflow
from commands import smoke_plan
from dry_runs import names, would_run
from support import only_in_ci

from fedlib import seals
from fedlib.cli import arguments, keep, take
from fedlib.errors import ConfigError, DataError
from fedlib.report import packs
from fedlib.report.pages.origin import attributes
from fedlib.results import RunResult
from fedlib.workflow import command
from fedlib.workflow.plan import SHOWING

RESULTS = "results/demo-smoke"
RUNS, TABLE = "runs/pfedmm/digits", f"{RESULTS}/tables/pfedmm/main.csv"
pytestmark = pytest.mark.slow  # they need a finished workflow


@pytest.fixture
def whole(finished, tmp_path, monkeypatch):
    """A copy of the checkout with the shards, in which nothing was trained."""
    folder = workflow.copy_checkout(tmp_path / "whole")
    for part in ("data/raw", f"{RESULTS}/shards"):
        shutil.copytree(finished / part, folder / part)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(take.locks, "hold_folder", lambda **_: None)
    return folder


@pytest.fixture
def there(finished, tmp_path):
    """A copy of all runs, to change, and a function that packs and takes them -> exit code"""
    runs = tmp_path / "there" / RUNS
    shutil.copytree(finished / RESULTS / RUNS, runs)

    def taken(*options) -> int:
        (tmp_path / "kept").mkdir(exist_ok=True)
        with pytest.MonkeyPatch.context() as patch:  # damaged ones, too
            patch.setattr(packs.seals, "verify", Path.read_bytes)
            packs.write_archive(tmp_path / "kept", tmp_path / "there", runs.rglob("*.h5"))
        args = arguments.read(["take", *workflow.smoke(), *options, "--", str(tmp_path / "kept")])
        return command.run(lambda: take.main(args))

    return runs, taken


def own(finished, run: str) -> Path:
    """Copy a run here, as if it had been made here -> its folder"""
    shutil.copytree(finished / RESULTS / RUNS / run, f"{RESULTS}/{RUNS}/{run}")
    return Path(RESULTS, RUNS, run)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


SHOWN = names(smoke_plan(), *SHOWING)


def test_runs_are_taken_and_tables_are_those_of_where_they_were_made(
    finished, whole, there, capsys
):
    _, taken = there
    workflow.mark_interrupted(whole, f"{RESULTS}/{RUNS}/fedem/seed1/evaluation.h5")
    assert taken() == 0
    assert ": 4 taken" in capsys.readouterr().out
    assert would_run(whole) == SHOWN
    done = workflow.snakemake(whole, TABLE, *workflow.smoke())
    assert done.returncode == 0, done.stdout[-3000:]
    assert (whole / TABLE).read_bytes() == (finished / TABLE).read_bytes()
    times = {path: path.stat().st_mtime_ns for path in whole.rglob("*.h5")}
    assert taken() == 0  # again, which changes nothing
    assert ": 4 here already" in capsys.readouterr().out
    assert times == {path: path.stat().st_mtime_ns for path in whole.rglob("*.h5")}
    (whole / RESULTS / RUNS / "fedem/seed1/evaluation.h5").unlink()
    trained = {job for job in would_run(whole) if job.startswith("train ")}
    assert trained == {"train pfedmm/digits/fedem/1"}  # for its weights


def changed(path: Path, **changes) -> None:
    """Write a result again with other contents, sealed."""
    result = RunResult.load(path)
    state = path.with_name("state.pt")
    for name, value in changes.items():
        old = getattr(result, name)
        changes[name] = {**old, **value} if isinstance(old, dict) else value
    replace(result, **changes).save(path, *([state] if path.name == "history.h5" else ()))


def damage(run: Path) -> None:
    content = (run / "history.h5").read_bytes()
    (run / "history.h5").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


REFUSED = {
    "damaged": (damage, "tar.xz/runs/pfedmm/digits/fedavg/seed0/history.h5 is truncated"),
    "of another specification": (
        lambda run: changed(run / "history.h5", spec={"rounds": 3}),
        "history.h5 is refused: rounds is 3 there and 2 here",
    ),
    "evaluated otherwise": (
        lambda run: changed(run / "evaluation.h5", spec={"predictions": ["auc"]}),
        r"evaluation.h5 is refused: predictions is \['auc'\] there and \[\] here",
    ),
    "of other data": (
        lambda run: changed(run / "history.h5", provenance={"inputs_sha256": "0" * 64}),
        "history.h5 is refused: its inputs were not .*digits.json",
    ),
    "of another history": (
        lambda run: changed(run / "evaluation.h5", provenance={"inputs_sha256": "0" * 64}),
        "evaluation.h5 is refused: its inputs were not .*history.h5",
    ),
    "of other weights": (
        lambda run: changed(run / "history.h5", provenance={"state_sha256": "0" * 64}),
        "history.h5 is refused: it does not say what its weights are",
    ),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_what_differs_is_refused_in_a_line_and_the_others_are_taken(
    whole, there, capsys, change, message
):
    runs, taken = there
    change(runs / "fedavg/seed0")
    assert taken() == 1
    told = capsys.readouterr()
    assert ": 3 taken" in told.out
    [line] = told.err.splitlines()
    assert re.search(message, line), line
    assert not (whole / RESULTS / RUNS / "fedavg/seed0").exists()


def test_a_run_of_other_code_counts_as_one_of_this_code_and_keeps_its_record(whole, there):
    runs, taken = there
    history, evaluation = (runs / "fedavg/seed0" / x for x in ("history.h5", "evaluation.h5"))
    changed(history, provenance={"code": "0" * 16, "commit": "abc"})
    read = seals.contents(f"{RESULTS}/shards/pfedmm/digits.json", history)
    changed(evaluation, provenance={"inputs_sha256": read})
    assert taken() == 0 and would_run(whole) == SHOWN
    provenance, _ = attributes(whole / RESULTS / RUNS / "fedavg/seed0/history.h5")
    assert (provenance["code"], provenance["commit"]) == ("0" * 16, "abc")
    assert RunResult.load(whole / RESULTS / RUNS / "fedavg/seed0/evaluation.h5").round


def age(run: Path) -> None:
    """Make the evaluation of a run one of older code."""
    evaluation = run / "evaluation.h5"
    seals.write_origin(evaluation, seals.origin(evaluation)._replace(code="0" * 16))


OWN = {
    "not evaluated": lambda run: (run / "evaluation.h5").unlink(),
    "evaluated by older code": age,
    "of a killed training": lambda run: (run / "history.h5").unlink(),
    "whole": lambda run: None,
}


@pytest.mark.parametrize("change", OWN.values(), ids=OWN)
def test_weights_and_histories_of_ones_own_are_never_replaced(finished, whole, there, change):
    run = own(finished, "fedem/seed0")
    change(run)
    before = contents(run)
    assert there[1]() == 0
    assert contents(run) == before
    assert seals.is_stand_in(run.with_name("seed1") / "state.pt")


def test_a_taking_that_is_killed_leaves_no_half_of_a_run_and_goes_on(whole, there, monkeypatch):
    copy, copied = shutil.copyfile, []

    def until_killed(*paths):
        copied.append(paths)
        if len(copied) == 4:  # the evaluation of the second run
            raise KeyboardInterrupt
        return copy(*paths)

    monkeypatch.setattr(take.shutil, "copyfile", until_killed)
    assert there[1]() == command.INTERRUPTED
    [folder] = (whole / RESULTS / RUNS).glob("*/seed*")
    assert {path.name for path in folder.iterdir()} == {"state.pt", "history.h5", "evaluation.h5"}
    assert there[1]() == 0
    assert len([*(whole / RESULTS).rglob("history.h5")]) == 4


def kept(*words) -> None:
    """Keep pFedMM's results of this folder in the folder `kept`."""
    given = ["keep", "pfedmm", *workflow.smoke(), "--out", "kept/pfedmm", *map(str, words)]
    keep.main(arguments.read(given))


@only_in_ci
def test_runs_that_are_kept_and_not_here_are_taken_first(finished, whole, monkeypatch):
    monkeypatch.chdir(finished)
    kept("--out", whole / "kept/pfedmm")
    page = whole / "kept/pfedmm"
    tables = {path.name: path.read_bytes() for path in page.glob("*.csv")}
    with packs.unpack_runs(page) as folder:
        assert len([*folder.glob("runs/pfedmm/digits/*/seed*/*.h5")]) == 8
        assert not [*folder.rglob("state.pt")]
    monkeypatch.chdir(whole)
    with pytest.raises(ConfigError, match="pfedmm/digits/fed.* with 2 rounds, and here it has few"):
        kept("--config", "rounds=1")
    for seed in (0, 1):  # FedAvg alone is here
        own(finished, f"fedavg/seed{seed}")
    with pytest.raises(ConfigError, match="has 2 runs that .*pfedmm/digits/fedem/seed0: .*FROM="):
        kept("--config", "labels=[fedavg]")
    take.main(arguments.read(["take", *workflow.smoke(), "--", str(page)]))
    with pytest.raises(DataError, match="is not up to date; run the workflow"):
        kept("--config", "labels=[fedavg]")
    done = workflow.snakemake(whole, *workflow.smoke("--config", "labels=[fedavg]"))
    assert done.returncode == 0, done.stdout[-3000:]
    kept("--config", "labels=[fedavg]")
    assert tables == {path.name: path.read_bytes() for path in page.glob("*.csv")}
