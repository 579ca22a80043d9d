#!/usr/bin/env python3
"""Estimate time and memory of all runs on this machine: results/FOLDER/estimates.json.

It trains nothing and reads no data, see `fedlib.forecast`. It leaves out runs that are done or
already estimated.

If the configuration has a budget, it also writes the table cells that fit into it, as a
configuration file for the next steps.
"""

import argparse
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of imports; see command.run

from fedlib import files, seals
from fedlib.forecast.cells import cells, hours
from fedlib.forecast.estimates import Estimates
from fedlib.workflow import command, config, dryrun, gpu, unfinished
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT


def main() -> None:
    """Parse the arguments, estimate what is not known yet, choose what a budget buys."""
    parser = argparse.ArgumentParser(description=command.described(__doc__))
    parser.add_argument(
        "--configfile", nargs="+", default=[], help="YAML or JSON, overrides config.yaml"
    )
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="overrides it")
    args = parser.parse_args()
    plan = Plan(config.read([ROOT / "config.yaml", *args.configfile], args.config))
    _estimate(plan)
    if plan.config["budget"]:
        _choose(plan)


def _estimate(plan: Plan) -> None:
    """Write down what is not known yet."""
    path = ROOT / plan.path("estimates")
    known = seals.remembered(path).get("runs", {})
    asked = [
        request
        for request in unfinished.requests(plan, ROOT)
        if known.get(request.name, {}).get("key") != request.key()
    ]
    if not asked:
        return
    with gpu.device(plan.config["device"]) as device:
        from fedlib.forecast import estimating  # takes seconds to import

        estimating.write(path, asked, device, plan.config["raw"])
    print(f"estimated {len(asked)} run{'s' * (len(asked) != 1)} anew: {path.relative_to(ROOT)}")


def _choose(plan: Plan) -> None:
    """Write down what the budget buys, and print it."""
    from fedlib.forecast import budget  # takes a second to import

    records = dryrun.records(ROOT, plan)
    estimates = Estimates.read(ROOT / plan.path("estimates")).corrected(plan.runs, records)
    every = cells(plan.papers, unfinished.seconds(plan, ROOT, records, estimates), estimates)
    with_published = set().union(
        *(
            budget.with_published(paper, ROOT / plan.path("published", paper=name))
            for name, paper in plan.papers.items()
        )
    )
    limit = config.budget_seconds(plan.config["budget"])
    bought = budget.affordable(every, limit, with_published)
    path = ROOT / plan.path("budget")
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, budget.selection(bought) + "\n")
    new = [cell for cell in bought if cell.jobs]
    spent = hours(sum(cell.seconds for cell in new))
    left = len([cell for cell in every if cell.tables]) - len(bought)
    print(
        f"budget {plan.config['budget']}: {len(new)} cells to run in {spent} "
        f"{estimates.unit}-hours, {len(bought) - len(new)} done, {left} not run; "
        f"see {path.relative_to(ROOT)}"
    )


if __name__ == "__main__":
    sys.exit(command.run(main))
