"""Print the jobs that are to be done, the reasons, and estimated times; Snakemake is not asked."""

import argparse

from fedlib.cli import estimate
from fedlib.cli.run import check_plan, tell
from fedlib.forecast.estimates import Estimates
from fedlib.workflow import cells, freshness, remarks


def main(args: argparse.Namespace) -> None:
    """Make missing estimates, choose the runs of a budget, and print."""
    plan = check_plan(args)  # before minutes of estimating
    fresh = freshness.check(plan)
    estimate.estimate(plan, fresh)
    if plan.config["budget"]:
        plan = estimate.choose(plan, fresh)
        fresh = freshness.check(plan)
    tell(remarks.count_clients(plan))
    tell(remarks.describe(plan))
    todo = freshness.list_open_jobs(plan, fresh, freshness.RESULTS)
    tell(cells.summary(plan, todo, Estimates.read(plan.path("estimates"))))
