"""Write the report of the existing results, without running missing jobs."""

import argparse
import subprocess
import sys

from fedlib.cli import arguments, estimate
from fedlib.errors import ConfigError
from fedlib.files import canonical_json
from fedlib.workflow import specs


def main(args: argparse.Namespace) -> None:
    """Write it with the script of the rule."""
    plan = estimate.chosen(arguments.plan(args))
    spec = specs.of_report(plan, plan.digest, there=True)
    if not spec["papers"]:
        raise ConfigError(
            f"results/{plan.folder} has nothing to report yet; run the workflow first"
        )
    paths = {"md": "report", "html": "report_html", "results": "results", "figures": "figures"}
    words = [word for name, file in paths.items() for word in (f"--{name}", plan.path(file))]
    command = [sys.executable, "scripts/report.py", "--spec", "@/dev/stdin", *words]
    done = subprocess.run(command, input=canonical_json(spec), text=True)
    sys.exit(done.returncode)
