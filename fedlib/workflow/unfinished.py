"""Trainings and evaluations without a result, and their estimated times."""

import json
from collections.abc import Iterable
from pathlib import Path

from fedlib.forecast.estimates import TIMED, Estimates, Timing, run_name
from fedlib.forecast.requests import Request
from fedlib.workflow import dryrun
from fedlib.workflow.layout import RESULTS_OF_RUNS
from fedlib.workflow.plan import Plan


def jobs(plan: Plan) -> list[tuple[str, dict]]:
    """The trainings and evaluations without a result -> [(stage, wildcards)]"""
    return [
        (stage, job)
        for stage, job in plan.jobs()
        if stage in TIMED and not Path(plan.path(RESULTS_OF_RUNS[stage], **job)).exists()
    ]


def requests(plan: Plan) -> list[Request]:
    """Requests to `fedlib.forecast`: every run with such a job, with its first seed."""
    unfinished = {run_name(job) for _, job in jobs(plan)}
    return [_request(plan, *name) for name in plan.runs if "/".join(name) in unfinished]


def _request(plan: Plan, paper: str, federation: str, label: str) -> Request:
    seed = plan.papers[paper].seeds_of(plan.run(paper, federation, label))[0]
    names = {"paper": paper, "federation": federation, "label": label, "seed": seed}
    return Request(
        name=run_name(names),
        spec=json.loads(plan.spec("evaluate", **names)),
        data=plan.data(paper, federation).spec(0),
        manifest=Path(plan.path("manifest", **names)),
        device=plan.config["device"],
        executor=plan.config["executor"],
    )


def seconds(
    plan: Plan, records: Iterable[Timing], estimates: Estimates
) -> dict[tuple[str, str], list[float]]:
    """Estimated seconds of each of these jobs, by run and stage; infinity if unknown.

    Tunings are included.

    Args:
      records: of timed jobs.
    """
    kinds = dryrun.by_kind(records)
    by_run: dict[tuple[str, str], list[float]] = {}
    tunings = [names for names in plan.tunings() if not Path(plan.path("trials", **names)).exists()]
    for stage, names in (*(("tune", names) for names in tunings), *jobs(plan)):
        job = dryrun.Job(stage, {key: str(value) for key, value in names.items()}, "")
        expected = dryrun.estimate(job, plan, kinds, estimates)
        by_run.setdefault((run_name(names), stage), []).append(
            float("inf") if expected is None else expected
        )
    return by_run
