"""Files in the place of others: whoever reads them refuses them, and the workflow makes them again.

Nothing here hangs on times or on what Snakemake has noted: what is exchanged has the times of what
was there, and there is no .snakemake.
"""

import os
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import commands
import pytest
import stages
import workflow
from commands import smoke_plan
from dry_runs import names, would_run

from fedlib.workflow import freshness, provenance, shell
from fedlib.workflow.layout import PATHS, STAGES
from fedlib.workflow.plan import SHOWING, Plan

pytestmark = pytest.mark.slow


PLAN = smoke_plan()
# In folders of their own: another tag, older data, and other runs of the same settings.
OTHERS = {
    "other": ["tag=other", "rounds=1", "seeds=[1]"],
    "older": ["tag=older", "set=[digits.seed=77]", "labels=[fedem]", "seeds=[1]"],
}
RUN = {"paper": "pfedmm", "federation": "digits", "label": "fedem", "seed": 1}
PAPER = {"paper": "pfedmm"}
TABLE = {"paper": "pfedmm", "table": "main"}
FIGURE = {"paper": "pfedmm", "figure": "accuracy_over_rounds"}
RESULTS, CUT, FRAMES = ("history", "evaluation"), ("shards", "manifest"), ("metrics", "clients")
SHEET = ("table_csv", "table_md", "table_tex", "table_json")
PICTURES = ("figure_pdf", "figure_png", "figure_svg")
DAMAGED = "damaged"  # in place of the folder that a file comes from


class Swap(NamedTuple):
    """Files in the place of others.

    Attributes:
      reader: stage, and wildcards of its job, that reads them.
      job: whose `files` they are in the place of.
      source: folder that they come from, one of OTHERS or that of PLAN.
      origin: wildcards there; and files, if they are not called alike.
    """

    reader: tuple[str, dict]
    job: dict
    files: tuple[str, ...]
    source: str = "smoke"
    origin: dict = {}  # noqa: RUF012
    called: tuple[str, ...] = ()

    def moves(self) -> list[tuple[str, str]]:
        """Paths from and to which files are copied."""
        plan = PLAN if self.source in ("smoke", DAMAGED) else PLANS[self.source]
        names = zip(self.called or self.files, self.files, strict=True)
        there = self.job | self.origin
        return [(plan.path(name, **there), PLAN.path(file, **self.job)) for name, file in names]


PLANS = {name: smoke_plan(*words) for name, words in OTHERS.items()}
METRICS, EVALUATE, TRAIN = ("metrics", PAPER), ("evaluate", RUN), ("train", RUN)
REPORT = ("report", {})
SWAPS = {
    "metrics, of another tag": Swap(METRICS, RUN, RESULTS, "other"),
    "metrics, of older data": Swap(METRICS, RUN, RESULTS, "older"),
    "metrics, of another seed": Swap(METRICS, RUN, RESULTS, origin={"seed": 0}),
    "metrics, history for evaluation": Swap(METRICS, RUN, RESULTS[1:], called=RESULTS[:1]),
    "metrics, shards for history": Swap(METRICS, RUN, RESULTS[:1], called=("shards",)),
    "evaluate, shards of older data": Swap(EVALUATE, RUN, CUT, "older"),
    "evaluate, state of another run": Swap(EVALUATE, RUN, ("state",), "other"),
    "evaluate, table for manifest": Swap(
        EVALUATE, RUN, ("manifest",), origin=TABLE, called=("table_json",)
    ),
    "train, shards of older data": Swap(TRAIN, RUN, CUT, "older"),
    "table, frames of another tag": Swap(("table", TABLE), PAPER, FRAMES, "other"),
    "table, clients for metrics": Swap(("table", TABLE), PAPER, ("metrics",), called=("clients",)),
    "figure, frames of another tag": Swap(("figure", FIGURE), PAPER, FRAMES, "other"),
    "report, table of another tag": Swap(REPORT, TABLE, SHEET, "other"),
    "report, picture of another tag": Swap(REPORT, FIGURE, ("figure_svg",), "other"),
    "report, figure of another tag": Swap(REPORT, FIGURE, (*PICTURES, "figure_json"), "other"),
    "report, damaged picture": Swap(REPORT, FIGURE, ("figure_svg",), DAMAGED),
}
# The state is large, so that its plan does not read it while its time is that of the right one.
UNREAD = {"evaluate, state of another run"}


@pytest.fixture(scope="module")
def folder(finished, tmp_path_factory):
    """A copy of the finished run, with what is taken from OTHERS beside it and no .snakemake."""
    folder = workflow.clone(finished, tmp_path_factory.mktemp("bound"))
    shutil.rmtree(folder / ".snakemake")
    with pytest.MonkeyPatch.context() as patch:
        # Stages run in this process, which has loaded more than they may.
        patch.setattr(provenance, "assert_covered", lambda *roots: None)
        patch.chdir(folder)
        for name, plan in PLANS.items():
            shell.write_specifications(plan, folder)
            taken = {path for x in SWAPS.values() if x.source == name for path, _ in x.moves()}
            for stage, job in plan.jobs():
                outputs = sum(freshness.RESULTS.get(stage, ()), ())
                is_taken = taken & {plan.path(output, **job) for output in outputs}
                is_read = stage in ("download", "partition") or name == "other" and "seed" in job
                if is_taken or is_read:
                    assert stages.run_here(stage, arguments(stage, job, plan)) == 0
        yield folder


def arguments(stage: str, job: dict, plan: Plan = PLAN) -> list[str]:
    """Those of a stage's script, without a shell."""
    return shlex.split(commands.command(plan, stage, **job))[2:]


def replaced(folder: Path, swap: Swap) -> dict[Path, tuple[bytes, os.stat_result]]:
    """Put the files of a swap in their places, with the times of what is there; what that was."""
    contents = {target: (folder / source).read_bytes() for source, target in swap.moves()}
    kept = {}
    for target, content in contents.items():
        path = folder / target
        kept[path] = path.read_bytes(), path.stat()
        path.write_bytes(content[: len(content) // 2] if swap.source == DAMAGED else content)
        os.utime(path, ns=(kept[path][1].st_mtime_ns,) * 2)
    return kept


def put_back(kept: dict[Path, tuple[bytes, os.stat_result]]) -> None:
    for path, (content, was) in kept.items():
        path.write_bytes(content)
        os.utime(path, ns=(was.st_mtime_ns,) * 2)


@pytest.mark.parametrize("name", SWAPS)
def test_a_file_of_something_else_is_refused_by_its_reader_and_made_again(
    name, folder, monkeypatch, capfd, tally
):
    swap = SWAPS[name]
    monkeypatch.chdir(folder)
    kept = replaced(folder, swap)
    try:
        stage, job = swap.reader
        code = stages.run_here(stage, arguments(stage, job))
        told = capfd.readouterr().err.strip().splitlines()
        found = freshness.check(PLAN).outdated
    finally:
        put_back(kept)
    assert code == 1 and len(told) == 1 and told[0].startswith("error: "), told
    places = {str(path.relative_to(folder)) for path in kept}
    assert any(Path(place).name in told[0] for place in places), told
    if name not in UNREAD:
        vouchers = {path for path in found if Path(path).parent in {Path(x).parent for x in places}}
        assert vouchers, found
    tally("a file of something else", "refused, and made again")
    assert freshness.check(PLAN).outdated == {}


# --- What is exchanged while nobody looks ---------------------------------------------------------


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of the finished run with its times, and without .snakemake."""
    folder = workflow.clone(finished, tmp_path)
    shutil.rmtree(folder / ".snakemake")
    return folder


SHOWN = names(PLAN, *SHOWING)


def test_a_folder_of_fewer_rounds_under_another_name_is_made_anew(copy):
    (copy / "results/demo-smoke").rename(copy / "results/demo-q9")
    shutil.rmtree(copy / "results/demo-q9/tables")
    plan = smoke_plan("tag=q9", "rounds=9")
    again = names(plan, "train", "evaluate", "metrics") | names(plan, "table", table="main")
    table = plan.path("table_md", **TABLE)
    assert would_run(copy, table, "--config", "tag=q9", "rounds=9") == again


def test_runs_that_were_exchanged_are_made_again_whatever_the_clock_says(copy):
    runs = copy / PLAN.path("runs", **PAPER) / "digits"
    (runs / "fedavg/seed1").rename(runs / "x")
    (runs / "fedem/seed1").rename(runs / "fedavg/seed1")
    (runs / "x").rename(runs / "fedem/seed1")
    for number, path in enumerate(sorted(copy.glob("results/**/*.*"))):
        day = 86_400 * (1 if number % 2 else -400)
        os.utime(path, (path.stat().st_mtime + day,) * 2)
    assert would_run(copy) == names(PLAN, "train", "evaluate", seed=1) | SHOWN


def test_a_csv_of_metrics_that_was_edited_is_made_again(copy):
    path = copy / PLAN.path("metrics_csv", **PAPER)
    was = path.stat()
    path.write_text(path.read_text().replace("fedem", "fedam"))
    os.utime(path, ns=(was.st_mtime_ns,) * 2)
    assert would_run(copy) == SHOWN


def test_a_copy_of_results_costs_nothing(copy):
    for file in reversed(sorted([*copy.glob("results/**/*"), *copy.glob("figures/**/*")])):
        os.utime(file)  # as cp -r leaves them
    for part in (*workflow.PARTS, "data/raw"):  # as git checks them out; and written again
        for file in (copy / part, *(copy / part).rglob("*")):
            os.utime(file)
    assert would_run(copy) == set()
    (copy / "data/raw").rename(copy / "away")
    assert would_run(copy) == set()
    (copy / "away").rename(copy / "data/raw")
    (copy / PLAN.path("evaluation", **RUN)).unlink()
    assert would_run(copy) == {"evaluate pfedmm/digits/fedem/1"} | SHOWN


def test_every_stage_whose_results_are_read_says_of_what_they_are():
    assert {*STAGES} - {*freshness.RESULTS} == {"download"}
    files = {file for kinds in freshness.RESULTS.values() for kind in kinds for file in kind}
    assert {*SHEET, *PICTURES, "figure_json"} <= files <= {*PATHS}
