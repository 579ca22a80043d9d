"""Estimate time and memory of all runs on this machine, and choose what a budget buys.

Nothing is trained and no data is read, see `fedlib.forecast`. Runs that are done or already
estimated are left out.
"""

import argparse
from pathlib import Path

from fedlib import files, seals
from fedlib.cli import arguments
from fedlib.forecast.cells import cells, hours
from fedlib.forecast.estimates import Estimates
from fedlib.workflow import config, dryrun, gpu, unfinished
from fedlib.workflow.plan import Plan


def main(args: argparse.Namespace) -> None:
    """Estimate, and choose if the configuration has a budget."""
    plan = arguments.plan(args)
    estimate(plan)
    if plan.config["budget"]:
        choose(plan)


def estimate(plan: Plan) -> None:
    """Write down what is not known yet: results/FOLDER/estimates.json."""
    path = Path(plan.path("estimates"))
    known = seals.remembered(path).get("runs", {})
    asked = [
        request
        for request in unfinished.requests(plan)
        if known.get(request.name, {}).get("key") != request.key()
    ]
    if not asked:
        return
    with gpu.device(plan.config["device"]) as device:
        from fedlib.forecast import estimating  # takes seconds to import

        estimating.write(path, asked, device, plan.config["raw"])
    print(f"estimated {len(asked)} run{'s' * (len(asked) != 1)} anew: {path}", flush=True)


def choose(plan: Plan) -> Plan:
    """Write down what the budget of a plan buys, and print it -> the plan of that"""
    from fedlib.forecast import budget  # takes a second to import

    records = dryrun.records(plan)
    estimates = Estimates.read(Path(plan.path("estimates"))).corrected(plan.runs, records)
    every = cells(plan.papers, unfinished.seconds(plan, records, estimates), estimates)
    with_published = set().union(
        *(
            budget.with_published(paper, Path(plan.path("published", paper=name)))
            for name, paper in plan.papers.items()
        )
    )
    limit = config.budget_seconds(plan.config["budget"])
    bought = budget.affordable(every, limit, with_published)
    path = Path(plan.path("budget"))
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, budget.configuration(bought) + "\n")
    new = [cell for cell in bought if cell.jobs]
    spent = hours(sum(cell.seconds for cell in new))
    left = len([cell for cell in every if cell.tables]) - len(bought)
    print(
        f"budget {plan.config['budget']}: {len(new)} cells to run in {spent} "
        f"{estimates.unit}-hours, {len(bought) - len(new)} done, {left} not run; see {path}",
        flush=True,
    )
    return chosen(plan)


def chosen(plan: Plan) -> Plan:
    """The plan of what the budget of another one bought, or itself if that has none."""
    if not plan.config["budget"]:
        return plan
    return Plan({**plan.config, **config.read([plan.path("budget")])})
