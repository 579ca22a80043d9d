"""Options of the rules' commands, and the files of long specifications."""

import shlex
from pathlib import Path

from fedlib.files import write_text
from fedlib.workflow.plan import SHOWING, Plan


def option(name: str, *values: str) -> str:
    """The words --name value for a command line; "" without a value."""
    return shlex.join([f"--{name}", *values]) if any(values) else ""


def write_specifications(plan: Plan, root: Path = Path()) -> None:
    """Write the files with the specifications of all jobs of `SHOWING` stages."""
    for stage, wildcards in plan.jobs():
        if stage in SHOWING:
            if not (path := root / plan.spec_option(stage, **wildcards).removeprefix("@")).exists():
                write_text(path, plan.spec(stage, **wildcards))
