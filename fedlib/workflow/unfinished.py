"""Tunings, trainings and evaluations whose results are missing or of something else."""

import json
from collections.abc import Iterable
from pathlib import Path

from fedlib.forecast.estimates import TIMED, Estimates, Request, run_name
from fedlib.spec import RunName
from fedlib.workflow import stale
from fedlib.workflow.layout import RESULTS_OF_RUNS
from fedlib.workflow.plan import Plan


def jobs(plan: Plan) -> list[tuple[str, dict]]:
    """The jobs of runs that are to be done -> [(stage, wildcards)]"""
    right = stale.look(plan).right
    found = [("tune", job) for job in plan.tunings() if plan.path("trials", **job) not in right]
    for job in (training._asdict() for training in plan.trainings()):
        done = [plan.path(RESULTS_OF_RUNS[stage], **job) in right for stage in TIMED]
        if not done[0]:
            found.append(("train", job))
        if not all(done):
            found.append(("evaluate", job))
    return found


def requests(plan: Plan) -> list[Request]:
    """Requests to `fedlib.forecast`: every run with such a job, with its first seed."""
    right = stale.look(plan).right
    unfinished = {run_name(job) for _, job in jobs(plan)}
    finished: dict[str, dict[str, Path]] = {}
    for training in plan.trainings():
        for stage in TIMED:
            path = plan.path(RESULTS_OF_RUNS[stage], **training._asdict())
            if path in right:
                finished.setdefault(run_name(training._asdict()), {})[stage] = Path(path)
    return [
        _request(plan, name, finished.get(str(name), {}))
        for name in plan.runs
        if str(name) in unfinished
    ]


def _request(plan: Plan, name: RunName, finished: dict[str, Path]) -> Request:
    job = {**name._asdict(), "seed": plan.papers[name.paper].seeds_of(plan.run(*name))[0]}
    return Request(
        name=str(name),
        spec=json.loads(plan.spec("train", **job)),
        data=plan.data(name.paper, name.federation).spec(0),
        manifest=Path(plan.path("manifest", **job)),
        finished=finished,
        executor=plan.config["executor"],
    )


def seconds(
    plan: Plan, jobs: Iterable[tuple[str, dict]], estimates: Estimates
) -> dict[tuple[str, str], list[float]]:
    """Estimated seconds of each of these jobs, by run and stage; infinity if unknown."""
    by_run: dict[tuple[str, str], list[float]] = {}
    for stage, names in jobs:
        run = plan.run(*(names[key] for key in ("paper", "federation", "label")))
        found = estimates.seconds(stage, names, run.tuning)
        by_run.setdefault((run_name(names), stage), []).append(
            float("inf") if found is None else found
        )
    return by_run
