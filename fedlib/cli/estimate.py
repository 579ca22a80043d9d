"""Estimate time and memory of all runs here, and choose the runs of a budget.

It trains nothing and reads no data, see `fedlib.forecast`. Runs that are done or already estimated
are left out.
"""

import argparse
from pathlib import Path

from fedlib import files, seals
from fedlib.cli import arguments
from fedlib.errors import ConfigError
from fedlib.forecast import cells
from fedlib.forecast.cells import hours
from fedlib.forecast.estimates import TIMED, Estimates
from fedlib.workflow import config, gpu, unfinished
from fedlib.workflow.plan import Plan


def main(args: argparse.Namespace) -> None:
    """Estimate, and choose if the configuration has a budget."""
    plan = arguments.plan(args)
    estimate(plan)
    if plan.config["budget"]:
        choose(plan)


def estimate(plan: Plan) -> None:
    """Write missing estimates to results/FOLDER/estimates.json."""
    path = Path(plan.path("estimates"))
    known, costs = seals.remembered(path).get("runs", {}), Estimates.read(path).costs
    asked = [
        request
        for request in unfinished.requests(plan)
        if (request.name, TIMED[0]) not in costs or known[request.name]["key"] != request.key()
    ]
    if not asked:
        return
    with gpu.device(plan.config["device"]) as device:
        from fedlib.forecast import estimating  # takes seconds to import

        estimating.write(path, asked, device, plan.config["raw"])
    print(f"estimated {len(asked)} run{'s' * (len(asked) != 1)} anew: {path}", flush=True)


def choose(plan: Plan) -> Plan:
    """Write and print the chosen runs of a plan -> the plan of these runs"""
    estimates = Estimates.read(plan.path("estimates"))
    seconds = unfinished.seconds(plan, unfinished.jobs(plan), estimates)
    every = cells.cells(plan.papers, seconds, estimates)
    with_published = set().union(
        *(
            cells.with_published(paper, Path(plan.path("published", paper=name)))
            for name, paper in plan.papers.items()
        )
    )
    budget = plan.config["budget"]
    bought = cells.affordable(every, config.budget_seconds(budget), with_published)
    if not bought:
        least = hours(min(cell.seconds for cell in every))
        raise ConfigError(
            f"budget={budget} buys no cell: the cheapest takes {least} {estimates.unit}-hours"
        )
    path = Path(plan.path("budget"))
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, cells.configuration(bought) + "\n")
    new = [cell for cell in bought if cell.jobs]
    spent = hours(sum(cell.seconds for cell in new))
    left = len(every) - len(bought)
    print(
        f"budget {budget}: {len(new)} cells to run in {spent} "
        f"{estimates.unit}-hours, {len(bought) - len(new)} done, {left} not run; see {path}",
        flush=True,
    )
    return chosen(plan)


def chosen(plan: Plan) -> Plan:
    """The plan of the runs chosen from another plan, or that plan if it chooses none."""
    if not plan.config["budget"]:
        return plan
    return Plan({**plan.config, **config.read([plan.path("budget")])})
