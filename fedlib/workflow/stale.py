"""Finds results of another specification, code or input, whatever their times.

Snakemake compares times, and specifications with its records in .snakemake. Both fail if folders
were exchanged, renamed or copied. So every result contains digests of its specification, code and
inputs (`fedlib.seals.Made`). Results with other digests are made again. Results that are up to date
get times no older than their inputs', so Snakemake accepts them, and a copy of results costs
nothing. Snakemake's records of earlier files in their places are ignored.

Of large files only the first bytes are read.
"""

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fedlib import seals
from fedlib.data import downloads
from fedlib.errors import DataError
from fedlib.workflow import layout
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT

# Files of each stage: those with `seals.Made`, those whose digest it contains, and others.
RESULTS = {
    "partition": (("shards",), ("manifest",), ()),
    "tune": (("trials",), ("choice",), ()),
    "train": (("history",), ("state",), ()),
    "evaluate": (("evaluation",), (), ()),
    "metrics": (("metrics",), ("clients",), ("metrics_csv",)),
    "table": (("table_json",), ("table_csv", "table_md", "table_tex"), ()),
    "figure": (("figure_json",), ("figure_pdf", "figure_png", "figure_svg"), ()),
    "report": (("report", "report_html"), (), ()),
}
LARGE = "train"  # stage whose state is read only if its time shows that it was replaced
# Files that no result has a digest of: the rules themselves, and the code of downloads.
UNNOTED = ("Snakefile", "rules/*.smk", "fedlib/data/download.py", "fedlib/data/downloads/*")


class Looked(NamedTuple):
    """Paths of results: those that must be made again, and those that are up to date."""

    wrong: set[str]
    right: set[str]


def look(plan: Plan) -> Looked:
    """The existing results that are of the plan, and those that are not.

    It sets the times of results that are up to date to the order of their dependences.
    """
    folder, wrong, right = Folder(plan), set(), set()
    for stage, job in plan.jobs():
        if stage in RESULTS:
            outputs = folder.look(stage, job)
            wrong |= outputs.wrong
            right |= outputs.right
    again = {path for x in plan.trainings() for path in _without_weights(plan, x._asdict(), right)}
    return Looked(wrong | again, right - again)


def is_complete(plan: Plan, right: Collection[str]) -> bool:
    """Whether all results of a plan are `right`, so that Snakemake would find nothing to do.

    False also for a user's own data, and if one of `UNNOTED` changed after the report: Snakemake
    may then find something to do.
    """
    results = {
        plan.path(file, **job)
        for stage, job in plan.jobs()
        for kind in RESULTS.get(stage, ())
        for file in kind
    }
    if not results.issubset(right) or any(downloads.table(x).local for x in plan.datasets()):
        return False
    unnoted = [path for pattern in UNNOTED for path in ROOT.glob(pattern)]
    newest = max(path.stat().st_mtime_ns for path in unnoted)
    return newest <= Path(plan.path("report_html")).stat().st_mtime_ns


def _without_weights(plan: Plan, job: dict, right: Collection[str]) -> Iterator[str]:
    """The results of a training whose weights its evaluation needs, if they are elsewhere."""
    state = plan.path("state", **job)
    if plan.path("evaluation", **job) not in right and seals.is_stand_in(state):
        yield from (state, plan.path("history", **job))


class Folder:
    """The files of a plan; each is read once."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.content = cache(seals.content)

    def look(self, stage: str, job: dict) -> Looked:
        """The results of a job; results that are up to date get times in order of dependence.

        Both sets are empty if a result is missing, which Snakemake notices itself.
        """
        kinds = ([self.plan.path(file, **job) for file in kind] for kind in RESULTS[stage])
        says, beside, others = kinds
        outputs = [*says, *beside, *others]
        if not all(Path(path).exists() for path in outputs):
            return Looked(set(), set())
        read = inputs(self.plan, stage, job)
        try:
            wrong = {path for path in says if not self._is_of(path, stage, job, read, beside)}
        except (DataError, OSError):
            wrong = set(says)  # a file cannot be read
        if wrong:
            return Looked(wrong, set())
        times = (*read, *_companions(self.plan, stage, job))
        self._put_right(outputs, list(times))
        return Looked(set(), set(outputs))

    def _is_of(self, path: str, stage: str, job: dict, read: list[str], beside: list[str]) -> bool:
        """Whether a file is the result of this job, as far as its digests tell."""
        made = seals.made(path)
        if made is None or made.spec != self.plan.digest(stage, **job):
            return False
        if made.code != self.plan.code(stage, **job):
            return False
        if all(Path(one).exists() for one in read) and made.inputs != self._contents(read):
            return False
        if stage == LARGE and max(map(self._time, beside)) <= self._time(path):
            return True
        return made.beside == self._contents(beside)

    def _contents(self, paths: list[str]) -> str:
        return seals.combined(self.content(path) for path in paths)

    def _time(self, path: str) -> int:
        return Path(path).stat().st_mtime_ns

    def _put_right(self, outputs: list[str], read: list[str]) -> None:
        """Make outputs no older than their inputs, and nothing newer than now."""
        read, outputs = (
            [path for path in paths if Path(path).exists()] for paths in (read, outputs)
        )
        with contextlib.suppress(OSError):  # another user's files, or a read-only disk
            for path in (*read, *outputs):
                if self._time(path) > time.time_ns():
                    os.utime(path)
            newest = max(map(self._time, read), default=0)
            for path in outputs:
                if self._time(path) < newest:
                    os.utime(path, ns=(newest, newest))


def inputs(plan: Plan, stage: str, job: dict) -> list[str]:
    """Files that a job reads, in the order of the digest `Made.inputs`.

    Files are left out if their digest is in another file (shards, state, numbers of tables), or if
    they only save time (of a run in `Run.settled_by`).
    """
    match stage:
        case "tune":
            return [plan.path("manifest", **job), *plan.weights(**job)]
        case "partition":
            dataset = plan.data(job["paper"], job["federation"]).dataset
            return [plan.path("receipt", dataset=dataset)]
        case "train":
            return [plan.path("manifest", **job), *plan.weights(**job), *plan.choice(**job)]
        case "evaluate":
            return [plan.path("manifest", **job), *plan.weights(**job), plan.path("history", **job)]
        case "metrics":
            runs = (*plan.run_files("history", **job), *plan.run_files("evaluation", **job))
            return [*runs, *plan.tuned("trials", **job)]
        case "table" | "figure":
            printed = plan.published(stage, job["paper"], job[stage])
            frames = [plan.path(name, paper=job["paper"]) for name in ("metrics", "clients")]
            data = plan.shown_data(**job) if stage == "figure" else []
            return [*frames, *(str(ROOT / file) for file in printed), *data]
    shown = layout.shown(
        json.loads(plan.spec("report")), plan.path("results"), plan.path("figures")
    )
    return [*shown, *map(str, layout.templates(ROOT))]


def _companions(plan: Plan, stage: str, job: dict) -> list[str]:
    """Other files that a job reads, whose times Snakemake compares."""
    match stage:
        case "evaluate":
            return [plan.path("state", **job), *plan.settled_files(**job)]
        case "report":
            return plan.exhibits("table_csv", "figure_pdf", "figure_png", "figure_svg")
    return []
