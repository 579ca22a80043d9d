"""Estimate time and memory of all runs here, and choose the runs of a budget.

It trains FedAvg for moments on made-up examples, and reads only users' own data; see
`fedlib.forecast`.
Runs that are done are left out.
"""

import argparse
import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from fedlib import files
from fedlib.cli import arguments
from fedlib.errors import ConfigError
from fedlib.forecast.estimates import TIMED, Estimates, Request
from fedlib.run_spec import RunSpec
from fedlib.spec import Data, Paper, RunName
from fedlib.spec.exhibits import Exhibit
from fedlib.workflow import cells, config, freshness, gpu
from fedlib.workflow.cells import duration
from fedlib.workflow.freshness import Freshness
from fedlib.workflow.layout import RESULTS
from fedlib.workflow.plan import Plan


def main(args: argparse.Namespace) -> None:
    """Estimate, and choose if the configuration has a budget."""
    plan = arguments.plan(args)
    fresh = freshness.check(plan)
    estimate(plan, fresh)
    if plan.config["budget"]:
        chosen = {"runs": choose(plan, fresh).config["runs"], "budget": None}
        files.write_text(plan.path("budget"), json.dumps(chosen, indent=1) + "\n")


def estimate(plan: Plan, fresh: Freshness) -> None:
    """Write the estimates of unfinished runs to results/FOLDER/estimates.json."""
    if asked := list_requests(plan, fresh):
        with gpu.device(plan.config["device"], wait=False) as device:
            from fedlib.forecast import speed  # takes seconds to import

            speed.write(Path(plan.path("estimates")), asked, device, plan.config["raw"])


def list_requests(plan: Plan, fresh: Freshness) -> list[Request]:
    """Requests to `fedlib.forecast`: every run with an open job, with its first seed."""
    found, todo = {}, freshness.list_open_jobs(plan, fresh)
    for name in {RunName(*(one.job[key] for key in RunName._fields)) for one in todo}:
        seeds = plan.papers[name.paper].seeds_of(plan.run(*name))
        every = [{**name._asdict(), "seed": seed} for seed in seeds]
        results = [(x, plan.path(RESULTS[x][0][0], **one)) for x in TIMED for one in every]
        found[name] = Request(
            name=str(name),
            spec=RunSpec.from_json(json.loads(plan.spec("train", **every[0]))),
            data=plan.data(name.paper, name.federation).spec(0),
            manifest=Path(plan.path("manifest", **every[0])),
            executor=plan.config["executor"],
            finished={stage: Path(path) for stage, path in results if path in fresh.current},
        )
    return [found[name] for name in plan.runs if name in found]


def choose(plan: Plan, fresh: Freshness) -> Plan:
    """Print what is chosen of a plan -> the plan of these runs"""
    estimates = Estimates.read(plan.path("estimates"))
    every = cells.cells(plan, freshness.list_open_jobs(plan, fresh), estimates)
    # Runs that are only shown, as they are finished, cost nothing and are not chosen.
    every = [cell for cell in every if not plan.is_kept(*cell.name.split("/"))]
    numbers: Counter[str] = Counter()
    for name, paper in plan.papers.items():
        numbers.update(count_numbers(paper, plan.path("published", paper=name)))
    budget = plan.config["budget"]
    if not (bought := cells.affordable(every, config.budget_seconds(budget), numbers)):
        costs = [cell.seconds for cell in every if cell.tables]
        least = f"the cheapest takes {duration([min(costs)])}" if costs else "no table shows these"
        raise ConfigError(f"budget={budget} buys no cell of a table: {least}")
    runs = sorted(cell.name for cell in bought)
    new = [cell for cell in bought if cell.jobs]
    print(
        f"budget {budget}: {len(new)} cells to run in {duration([cell.seconds for cell in new])}, "
        f"{len(bought) - len(new)} done, {sum(cell.jobs > 0 for cell in every) - len(new)} not run",
        flush=True,
    )
    return freshness.make_plan({**plan.config, "runs": runs, "budget": None})


def count_numbers(paper: Paper, file: str | Path) -> Mapping[str, int]:
    """How many published numbers the tables show beside each run, by the run's name.

    Args:
      file: of the paper's own numbers; not read if no table shows any.

    Raises:
      DataError: for an invalid file.
    """
    from fedlib.report import printed  # takes a second to import

    tables = [x for x in paper.tables.values() if x.published and x.kind != "criteria"]
    table = printed.read(file) if tables else None
    data = {data.name: data for data in paper.data}
    found = {}
    for name, run in paper.runs_by_name().items():
        dataset, rows = data[run.federation].dataset, set()
        for shown in (x for x in tables if x.shows(run.federation, run.label)):
            labels = {run.label, *_entries(shown, "rows", "printed", label=run.label)}
            for exhibit in _published_exhibits(shown, data[run.federation], run.label):
                rows |= printed.numbers(table, exhibit, dataset, labels)
        if rows:
            found[str(name)] = len(rows)
    return found


def _published_exhibits(shown: Exhibit, data: Data, label: str) -> list[str]:
    """The names of the published exhibits that a table shows beside a run."""
    others = [x.items() for x in _entries(shown, "rows", "elsewhere", label=label)]
    here = [data.name, *(name for each in others for name, of in each if of == data.name)]
    columns = [x for f in here for x in _entries(shown, "columns", "published", federation=f)]
    if name := shown.params.get("names", {}).get(data.name):
        columns = [f"{source['name']}-{name}" for source in shown.params["sources"]]
    if not columns:
        with contextlib.suppress(KeyError):  # of another federation's partition
            columns = [shown.published.format(**{**data.partition, "label": label})]
    return columns


def _entries(shown: Exhibit, what: str, entry: str, **of: str) -> list[str]:
    """An entry of those rows or columns of a table that are `of` a label or a federation."""
    every = [x for x in shown.params.get(what, ()) if isinstance(x, dict)]
    return [x[entry] for x in every if entry in x and all(x.get(k) == v for k, v in of.items())]
