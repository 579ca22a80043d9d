"""Print something of a job: its specification, its shell command, or why it would run."""

import argparse
from pathlib import Path

from fedlib.cli import arguments
from fedlib.workflow import shell, why


def main(args: argparse.Namespace) -> None:
    """Print it."""
    plan = arguments.plan(args)
    if args.command == "commands":
        shell.write_specifications(plan)
        if not args.job:
            print("\n".join(shell.script(plan)))
            return
    stage, wildcards = shell.job(*args.job)
    match args.command:
        case "spec":
            print(plan.spec(stage, **wildcards))
        case "why":
            print("\n".join(why.lines(plan, stage, wildcards, specification=_of_result)))
        case _:
            print(shell.command(plan, stage, **wildcards))


def _of_result(path: Path) -> dict:
    """The specification that a history or an evaluation is the result of."""
    from fedlib.results import RunResult  # takes half a second to import

    return RunResult.load(path).spec
