"""Print a job's specification, or the reasons why it would run."""

import argparse
from pathlib import Path

from fedlib.cli import arguments
from fedlib.workflow import freshness, shell


def main(args: argparse.Namespace) -> None:
    """Print the answer."""
    plan = arguments.plan(args)
    stage, wildcards = shell.job(args.stage, args.name)
    if args.command == "spec":
        print(plan.spec(stage, **wildcards))
    else:
        print("\n".join(freshness.explain(plan, stage, wildcards, _of_result)))


def _of_result(path: Path) -> dict:
    """The specification of a history or an evaluation."""
    from fedlib.results import RunResult  # takes half a second to import

    return RunResult.load(path).spec
