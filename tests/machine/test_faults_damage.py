"""Every file that a stage reads, damaged: refused in a line that names it, or provably harmless.

Harmless means that what the stage makes of it is the same, to the last bit.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import made_up
import made_up_report
import numpy as np
import pytest
import stages
from damage import damaged
from faults import often

from fedlib import seals
from fedlib.data.download import receipt
from fedlib.files import digest
from fedlib.report import frames, packs
from fedlib.report.metrics.runs import collect
from fedlib.report.pages import as_html, as_markdown
from fedlib.report.pages.contents import gather
from fedlib.report.tables import render
from fedlib.report.tables.sheets import TableInputs
from fedlib.results import RunResult
from fedlib.run.build import verify_file
from fedlib.run.checkpoint import Checkpoints
from fedlib.workflow import command

CUTS, FLIPS = often(3, 20), often(8, 200)
ROUNDS = 6


class Case(NamedTuple):
    """A file, and the stage that reads it.

    Attributes:
      path: of the file.
      made: runs the stage and returns what it makes, comparable bit by bit.
      named: what the message must name: the file, or the folder to delete.
    """

    path: Path
    made: Callable[[], object]
    named: str


def arrays(path: Path) -> list:
    """All numbers of a result, as bytes."""
    found = RunResult.load(path)
    return [
        (view, name, array.tobytes())
        for view, scores in sorted(found.scores.items())
        for name, array in vars(scores).items()
    ] + [(name, array.tobytes()) for name, array in sorted(found.diagnostics.items())]


def called(stage: str, arguments: list[str], out: Path) -> list:
    """What a stage writes to `out`; SystemExit if it fails."""
    out.unlink(missing_ok=True)
    code = stages.run_here(stage, arguments)
    if code:
        assert not out.exists()
        raise SystemExit(code)
    return arrays(out)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Shards, a finished run of six rounds, and the checkpoint that it had after round 5."""
    folder = stages.shards(tmp_path_factory.mktemp("run")) / "run"
    spec = {**stages.SPEC, "rounds": ROUNDS, "evaluate_every": 2}
    options = {"run_spec": spec, "checkpoint-every": 5}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "clear", lambda self, last: None)
        assert stages.run_here("train", stages.options(folder, **options)) == 0
    shutil.copytree(folder / "checkpoints", folder / "kept")
    return folder, options


def trained(run) -> Callable[[], object]:
    """Goes on from the checkpoint that is kept."""
    folder, options = run

    def made():
        shutil.rmtree(folder / "checkpoints")
        shutil.copytree(folder / "kept", folder / "checkpoints")
        changes = {"history": folder / "other.h5", "state": folder / "other.pt"}
        return called("train", stages.options(folder, **options, **changes), folder / "other.h5")

    return made


def evaluated(run) -> Callable[[], object]:
    folder, options = run
    arguments = stages.evaluation(folder, options["run_spec"])
    return lambda: called("evaluate", arguments, folder / "evaluation.h5")


def collected(runs: Path, exhibit: dict) -> Callable[[], object]:
    def made():
        tidy, clients = collect(made_up.metrics_spec(exhibit), runs)
        return tidy.to_csv(), clients.to_csv()

    return made


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    """Runs of a made-up paper, their frames, and the exhibit that shows them."""
    folder, exhibit = tmp_path_factory.mktemp("paper"), made_up.exhibit(["fedavg", "pfedmm"])
    made_up.save_runs(exhibit, folder / "runs")
    tidy, clients = collect(made_up.metrics_spec(exhibit), folder / "runs")
    frames.write_parquet(tidy, folder / "metrics.parquet")
    frames.write_parquet(clients, folder / "clients.parquet")
    return folder, exhibit


def tabled(paper) -> Callable[[], object]:
    folder, exhibit = paper
    files = folder / "metrics.parquet", folder / "clients.parquet"

    def made():
        sheet = TableInputs.read(exhibit, *files, None).make()
        return render.to_csv(sheet), render.to_markdown(sheet), render.to_latex(sheet)

    return made


def of_run(request, name: str, reader: Callable) -> Case:
    run = request.getfixturevalue("run")
    path = run[0].parent / name
    return Case(path, reader(run), "checkpoints" if "kept" in name else path.name)


def of_paper(request, name: str) -> Case:
    folder, exhibit = request.getfixturevalue("paper")
    path = folder / name
    reads = collected(folder / "runs", exhibit) if name.startswith("runs") else None
    return Case(path, reads or tabled((folder, exhibit)), path.name)


def of_report(request, name: str) -> Case:
    project = made_up_report.project(request.getfixturevalue("tmp_path"))

    def made():
        content = gather(project.spec, project.results, project.figures)
        return as_markdown.page(content, project.root / "R.md"), as_html.page(content)

    path = project.results / "tables/pfedmm" / name
    return Case(path, made, path.name)


def of_weights(request, name: str) -> Case:
    folder = request.getfixturevalue("tmp_path")
    (folder / "set").mkdir()
    (folder / "set/weights.pth").write_bytes(bytes(range(256)) * 8)
    entry = {"path": "set/weights.pth", "sha256": digest(folder / "set/weights.pth")}
    seals.write_json(folder / "set.json", {"dataset": "set", "files": [entry]})
    return Case(folder / name, lambda: digest(verify_file(folder / "set.json")), name)


def of_pack(request, name: str) -> Case:
    folder, _ = request.getfixturevalue("paper")
    pack = request.getfixturevalue("tmp_path")
    spec = {"name": "main", "federations": [{}], "runs": [{}]}
    shown = [packs.Entry("table", spec, True)]
    packs.write(pack, folder / "metrics.parquet", folder / "clients.parquet", shown)

    def made():
        numbers, clients, exhibits = packs.read(pack)
        both = [frames.read_parquet(file).to_csv() for file in (numbers, clients)]
        return json.dumps([list(one) for one in exhibits]), both

    return Case(pack / name, made, name)


CASES = {  # a function that makes the case, and its arguments
    "shard": (of_run, "toy.h5", evaluated),
    "manifest": (of_run, "toy.json", evaluated),
    "state": (of_run, "run/state.pt", evaluated),
    "history, evaluated": (of_run, "run/history.h5", evaluated),
    "checkpoint.json": (of_run, "run/kept/checkpoint.json", trained),
    "checkpoint": (of_run, f"run/kept/state-{ROUNDS - 1}.pt", trained),
    "history, collected": (of_paper, "runs/emnist/fedavg/seed1/history.h5"),
    "evaluation": (of_paper, "runs/emnist/fedavg/seed1/evaluation.h5"),
    "metrics.parquet": (of_paper, "metrics.parquet"),
    "clients.parquet": (of_paper, "clients.parquet"),
    "table, text": (of_report, "main.json"),
    "table, numbers": (of_report, "main.csv"),
    "receipt of weights": (of_weights, "set.json"),
    "weights": (of_weights, "set/weights.pth"),
    "pack, metrics": (of_pack, "metrics.parquet"),
    "pack, exhibits": (of_pack, "exhibits.json"),
}
# HDF5 and zip archives have bytes that nobody reads, and only the first are checked by content.
MAY_BE_HARMLESS = {"shard"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_damaged_file_is_refused_by_name_or_makes_no_difference(name, request, capfd, tally):
    of, *about = CASES[name]
    case = of(request, *about)
    right, content = case.made(), case.path.read_bytes()
    capfd.readouterr()
    try:
        for kind, changed in damaged(content, CUTS, FLIPS):
            case.path.write_bytes(changed)
            outcome = outcome_of(case, right, capfd)
            assert outcome == "refused" or name in MAY_BE_HARMLESS
            tally(f"{name} {kind}", outcome)
    finally:
        case.path.write_bytes(content)


def outcome_of(case: Case, right: object, capfd) -> str:
    """`refused`, or `harmless` where the stage makes what it made of the whole file."""
    found = []

    def main():
        found.append(case.made())

    try:
        code = command.run(main)
    except SystemExit as error:  # of a stage that has told its message already
        code = error.code
    told = capfd.readouterr().err
    if code == 0:
        assert found == [right], "a wrong number"
        return "harmless"
    [line] = told.splitlines()
    assert line.startswith("error: ") and str(case.named) in line, line
    return "refused"


def test_the_receipt_of_a_data_set_tells_damaged_files_apart(tmp_path, tally):
    # Raw files without a published checksum: the receipt changes, and what was made of it is made
    # again (tests/workflow/test_incremental.py).
    path = tmp_path / "set/a"
    path.parent.mkdir()
    content = np.arange(4096, dtype=np.uint8).tobytes()
    from fedlib.data.raw import RawFile

    file = RawFile("set/a", None, "")
    path.write_bytes(content)
    right = receipt("set", [file], tmp_path)
    for _, changed in damaged(content, CUTS, FLIPS):
        path.write_bytes(changed)
        assert receipt("set", [file], tmp_path) != right
        tally("raw file without a checksum", "told by its receipt")
