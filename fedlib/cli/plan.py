"""Print the jobs that Snakemake would run now, the reasons, and estimated times."""

import argparse

from fedlib.cli import estimate
from fedlib.cli.run import checked, configured, tell
from fedlib.forecast.estimates import Estimates
from fedlib.workflow import dryrun, remarks


def main(args: argparse.Namespace) -> None:
    """Make missing estimates, choose the runs of a budget, and print."""
    plan = checked(args)  # before minutes of estimating
    estimate.estimate(plan)
    given = configured(args, plan)
    if plan.config["budget"]:
        plan = estimate.choose(plan)
    tell(remarks.count_clients(plan))
    tell(remarks.describe(plan))
    estimates = Estimates.read(plan.path("estimates"))
    tell(dryrun.summary(plan, dryrun.jobs([*args.options, *given]), estimates))
