"""Print the specification of a job, the --spec of its script."""

import argparse

from fedlib.cli import arguments
from fedlib.workflow.config import check_choice
from fedlib.workflow.layout import STAGES
from fedlib.workflow.plan import Plan


def main(args: argparse.Namespace) -> None:
    """Print it."""
    check_choice("STAGE", args.stage, STAGES)
    plan = arguments.plan(args)
    jobs = jobs_of(plan, args.stage)
    check_choice(args.stage, args.name, jobs)
    print(plan.spec(args.stage, **jobs[args.name]))


def jobs_of(plan: Plan, stage: str) -> dict[str, dict]:
    """The wildcards of a stage's jobs by name, such as "pfedmm/digits/fedem/seed1234"."""
    jobs = [job for one, job in plan.jobs() if one == stage]
    return {"/".join(_part(*item) for item in job.items()): job for job in jobs}


def _part(wildcard: str, value: object) -> str:
    return f"seed{value}" if wildcard == "seed" else str(value).strip("/")
