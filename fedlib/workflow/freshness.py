"""Which results are up to date, and which jobs are open.

Snakemake compares times, and specifications with its records in .snakemake. Both fail if folders
were exchanged, renamed or copied. So every result contains digests of its specification, code and
inputs (`fedlib.seals.Made`). Results with other digests are made again. Results that are up to date
get times no older than their inputs', so Snakemake accepts them, and a copy of results costs
nothing. Snakemake's records of earlier files in their places are ignored, and so are edits of
rules.

A selection says what to compute. Tables also show what else of a paper is finished with the same
settings and data, whatever its code (`make_plan`).

Of large files only the first bytes are read.
"""

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from glob import glob
from pathlib import Path
from typing import NamedTuple

from fedlib import seals
from fedlib.data import downloads
from fedlib.errors import DataError
from fedlib.spec import RunName
from fedlib.workflow import layout, preflight
from fedlib.workflow.declarations import Training
from fedlib.workflow.layout import RESULTS
from fedlib.workflow.plan import SHOWING, Plan
from fedlib.workflow.provenance import ROOT

OF_RUNS = ("tune", "train", "evaluate")
LARGE = "train"  # stage whose state is read only if its time shows that it was replaced


MISSING, FOLLOWS = "not there yet", "follows from the above"  # causes of open jobs


class Freshness(NamedTuple):
    """Paths of results.

    Attributes:
      outdated: must be made again, each with the cause.
      current: are up to date.
    """

    outdated: dict[str, str]
    current: set[str]


class OpenJob(NamedTuple):
    """A job that is to be done: stage, wildcards, and why."""

    stage: str
    job: dict
    cause: str


def make_plan(config: Mapping) -> Plan:
    """The plan of a configuration, and of what else of its papers is finished in its folder."""
    plan = Plan(config)
    if unfit := preflight.unfit(plan):
        plan = Plan(config, (), unfit)
    if not (others := {*list_others(plan)}):
        return plan
    whole = Plan(config, others, unfit)
    folder = _Folder(whole)
    return Plan(config, {x for x in others.intersection(whole.trainings()) if folder.has(x)}, unfit)


def list_others(plan: Plan) -> list[Training]:
    """The trainings of a plan's papers that are evaluated in its folder and not of the plan."""
    found = set()
    for paper in plan.papers:
        declared = plan.whole[paper].runs_by_name()
        for file in glob(plan.path("evaluation", paper=paper, federation="*", label="*", seed="*")):
            *name, seed = Path(file).parts[-5:-1]
            if RunName(*name) in declared and seed[4:].isdecimal():
                found.add(Training(*name, int(seed[4:])))
    return sorted(found.difference(plan.trainings()))


def check(plan: Plan) -> Freshness:
    """The existing results that are of the plan, and those that are not.

    It sets the times of results that are up to date to the order of their dependences.
    """
    folder, found = _Folder(plan), Freshness({}, set())
    for stage, job in (x for x in plan.jobs() if x[0] in RESULTS):
        outputs = folder.outputs(stage, job)
        if (cause := folder.cause(stage, job)) is None:
            folder.put_times_right(stage, job)
            found.current.update(path for kind in outputs for path in kind)
        elif cause != MISSING:
            found.outdated.update(dict.fromkeys(outputs[0], cause))
    for job in (one._asdict() for one in plan.trainings()):
        state = plan.path("state", **job)  # which the evaluation needs
        if plan.path("evaluation", **job) not in found.current and seals.is_stand_in(state):
            again = [state, plan.path("history", **job)]
            found.outdated.update(dict.fromkeys(again, "weights are elsewhere"))
            found.current.difference_update(again)
    # A user's files that were touched or put away count only where clients are still to be cut. If
    # shards were deleted, nothing says what they were cut from: files that are there may be others.
    own = {x for x in plan.downloads() if downloads.table(downloads.of_key(x)[0]).local}
    todo = [x.job for x in list_open_jobs(plan, found, ("partition", *OF_RUNS))] if own else ()
    cut = [x for x in plan.partitions() if plan.path("manifest", **x) not in found.current]
    cut = [x for x in cut if x in todo or Path(list_inputs(plan, "partition", x)[0]).is_file()]
    own.difference_update(plan.download(**x) for x in cut)
    found.current.update(plan.path("receipt", dataset=name) for name in own)
    return found


def list_open_jobs(
    plan: Plan, found: Freshness, stages: Collection[str] = OF_RUNS
) -> list[OpenJob]:
    """The jobs of `stages` that are to be done, as far as digests tell before anything runs.

    Shards or choices of settings that come out as before repeat nothing; others repeat their runs.
    """
    todo, opened = [], set()
    for stage, job in plan.jobs():
        if stage not in stages:
            continue
        own, paper = plan.path(RESULTS[stage][0][0], **job), job.get("paper")
        runs = [plan.path("history", **job)] if stage == "evaluate" else []
        if own not in found.current:
            todo.append(OpenJob(stage, job, found.outdated.get(own, MISSING)))
        elif not found.current.issuperset(runs) or (stage in SHOWING and paper in opened):
            todo.append(OpenJob(stage, job, FOLLOWS))
        else:
            continue
        if stage in (*OF_RUNS, *SHOWING):  # None stands for the report, which is of all papers
            opened |= {None} if stage in ("table", "figure") else {paper, None}
    if "partition" not in stages:
        return todo
    needs = {*list_needs(plan, todo)}
    # Shards that were deleted to save space are cut only for a job that reads them.
    todo = [
        one
        for one in todo
        if (one.stage, one.cause) != ("partition", MISSING)
        or plan.path("shards", **one.job) in needs
        or not Path(plan.path("manifest", **one.job)).exists()
    ]
    cut = {plan.download(**one.job) for one in todo if one.stage == "partition"}
    receipts = [(x, plan.path("receipt", dataset=x)) for x in plan.downloads()]
    missing = [x for x, at in receipts if (x in cut or at in needs) and not Path(at).exists()]
    return [*(OpenJob("download", {"dataset": x}, MISSING) for x in missing), *todo]


def list_needs(plan: Plan, todo: Iterable[OpenJob]) -> list[str]:
    """Shards, and receipts of pretrained weights, that open jobs of runs read."""
    jobs = [one.job for one in todo if one.stage in OF_RUNS]
    needs = (path for x in jobs for path in (plan.path("shards", **x), *plan.weights(**x)))
    return [*dict.fromkeys(needs)]


def list_inputs(plan: Plan, stage: str, job: dict) -> list[str]:
    """Files that a job reads, in the order of the digest `Made.inputs`.

    Files are left out if their digest is in another file (shards, state, numbers of tables).
    """
    match stage:
        case "tune":
            return [plan.path("manifest", **job), *plan.weights(**job)]
        case "partition":
            data = plan.data(job["paper"], job["federation"])
            own = downloads.own_files(data.dataset, data.params.get("source"), plan.config["raw"])
            return [*map(str, own)] or [plan.path("receipt", dataset=plan.download(**job))]
        case "train":
            return [plan.path("manifest", **job), *plan.weights(**job), *plan.choice(**job)]
        case "evaluate":
            return [plan.path("manifest", **job), *plan.weights(**job), plan.path("history", **job)]
        case "metrics":
            return [*plan.files("history", "evaluation", **job), *plan.files("trials", **job)]
        case "table" | "figure":
            printed = plan.published_files(stage, job["paper"], job[stage])
            frames = [plan.path(name, paper=job["paper"]) for name in ("metrics", "clients")]
            return [*frames, *(str(ROOT / file) for file in printed)]
    folders = plan.path("results"), plan.path("figures")
    shown = layout.report_inputs(json.loads(plan.spec("report")), *folders)
    return [*shown, *map(str, layout.templates(ROOT))]


class _Folder:
    """The files of a plan; each is read once."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.content = cache(seals.content)

    def outputs(self, stage: str, job: dict) -> list[list[str]]:
        """The results of a job, see `RESULTS`."""
        return [[self.plan.path(file, **job) for file in kind] for kind in RESULTS[stage]]

    def has(self, training: Training) -> bool:
        """Whether a training is finished, with all that it was made of."""
        job, tunings = training._asdict(), self.plan.tunings_of(*training)
        data = {"paper": training.paper, "federation": training.federation}
        cuts = {self.plan.replicate(**one) for one in (job, *tunings)}
        jobs = [("partition", {**data, "replicate": cut}) for cut in cuts]
        jobs += [*(("tune", tuning) for tuning in tunings), ("train", job), ("evaluate", job)]
        return all(self.cause(*one) is None for one in jobs)

    def cause(self, stage: str, job: dict) -> str | None:
        """Why the results of a job are not the plan's, by their digests; None if they are."""
        says, beside = self.outputs(stage, job)
        if not all(Path(path).exists() for path in (*says, *beside)):
            return MISSING
        try:
            causes = (self._cause(path, stage, job, beside) for path in says)
            return next(filter(None, causes), None)
        except (DataError, OSError):
            return "cannot be read"

    def put_times_right(self, stage: str, job: dict) -> None:
        """Make outputs no older than their inputs, and nothing newer than now."""
        read = list_inputs(self.plan, stage, job)
        if stage == "evaluate":  # Snakemake compares the times of what it reads besides, too
            read.append(self.plan.path("state", **job))
        elif stage == "report":
            read += self.plan.files("table_csv", "figure_pdf", "figure_png", "figure_svg")
        outputs = [path for kind in self.outputs(stage, job) for path in kind]
        read = [path for path in read if Path(path).exists()]
        with contextlib.suppress(OSError):  # another user's files, or a read-only disk
            for path in (*read, *outputs):
                if self._time(path) > time.time_ns():
                    os.utime(path)
            newest = max(map(self._time, read), default=0)
            for path in outputs:
                if self._time(path) < newest:
                    os.utime(path, ns=(newest, newest))

    def _cause(self, path: str, stage: str, job: dict, beside: list[str]) -> str | None:
        made, read = seals.origin(path), list_inputs(self.plan, stage, job)
        if made is None or made.spec != self.plan.digest(stage, **job):
            return "specification changed"
        is_kept = stage in OF_RUNS and self.plan.is_kept(**job)
        if not is_kept and made.code != self.plan.code(stage, **job):
            return "code changed"
        if all(Path(one).is_file() for one in read):  # not the empty folder of files put away
            inputs = self._contents(read)
            if stage == "partition":
                data = self.plan.data(job["paper"], job["federation"])
                inputs = downloads.with_names(inputs, data.dataset, read, self.plan.config["raw"])
            if made.inputs != inputs:
                return "input changed"
        elif stage in ("train", "evaluate") and Path(read[0]).exists():
            # A receipt of weights is gone; a result of a run also contains its manifest's digest.
            if self.content(read[0]).encode() not in Path(path).read_bytes():
                return "input changed"
        is_old = stage == LARGE and max(map(self._time, beside)) <= self._time(path)
        return None if is_old or made.beside == self._contents(beside) else "files were exchanged"

    def _contents(self, paths: list[str]) -> str:
        return seals.combine(self.content(path) for path in paths)

    def _time(self, path: str) -> int:
        return Path(path).stat().st_mtime_ns
