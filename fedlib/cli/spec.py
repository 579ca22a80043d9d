"""Print the specification of a job, the --spec of its script."""

import argparse

from fedlib.cli import arguments
from fedlib.workflow import shell


def main(args: argparse.Namespace) -> None:
    """Print it."""
    plan = arguments.plan(args)
    stage, wildcards = shell.job(args.stage, args.name)
    print(plan.spec(stage, **wildcards))
