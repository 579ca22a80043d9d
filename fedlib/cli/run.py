"""Run the workflow: make the shards, then everything else, and show the results."""

import argparse
import compileall
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from fedlib import locks
from fedlib.cli import arguments
from fedlib.environment import ROOT
from fedlib.errors import ConfigError, DataError
from fedlib.workflow import command, console, gpu, preflight, remarks
from fedlib.workflow.plan import Plan

SNAKEMAKE = (sys.executable, "-m", "fedlib.workflow.console")
# Options with which jobs may run on other machines, whose GPUs this one does not know.
ELSEWHERE = ("--executor", "-e", "--workflow-profile", "--profile")


def main(args: argparse.Namespace) -> None:
    """Check the configuration, lock the folder, and run Snakemake in it."""
    if any(word.startswith(("-n", "--dry")) for word in args.options):
        raise ConfigError("make plan says what would run; for Snakemake's own words: snakemake -n")
    if odd := re.search(r"(^| )(-d|--directory|(--cores|-c)[ =]?0\b)", " ".join(args.options)):
        raise ConfigError(f"make works here and with at least one core; leave out {odd[0].strip()}")
    plan = check_plan(args)
    tell(remarks.describe(plan))
    locks.hold_folder(command=args.said)
    before = _result_times(plan)
    _run(args, plan)
    report, made = plan.path("report_html"), _result_times(plan)
    if made.get(report) != before.get(report):
        show(plan)
    elif report in made and made == before:  # else only a part was requested, as by ARGS=partitions
        print(f"Nothing to do: {report} is up to date.")


def _run(args: argparse.Namespace, plan: Plan) -> None:
    """Run the steps."""
    # If Python must not write compiled files, every job would compile the modules again.
    compileall.compile_dir(ROOT / "fedlib", quiet=2)
    here = not any(word.startswith(ELSEWHERE) for word in args.options)
    if here and (device := gpu.choose_device(plan.config["device"])) != plan.config["device"]:
        args.config = [x for x in args.config if x[:7] != "device="] + [f"device={device}"]
        plan = arguments.plan(args)
    *first, last = steps(args, plan)
    for step in first:
        start(step)
    tell(remarks.count_clients(plan))  # what is cut into clients now
    start(last)


def check_plan(args: argparse.Namespace) -> Plan:
    """The plan of a command that will run or estimate, after all possible checks."""
    gpu.slots(0)
    return preflight.check(arguments.plan(args))


def steps(args: argparse.Namespace, plan: Plan) -> list[list[str]]:
    """The processes of a run, one after the other.

    The first Snakemake makes the shards, the second tunes, if tuned runs are trained already. If a
    file has the same content as before, the next Snakemake repeats nothing for it.
    """
    given = config_options(args, plan)
    # Only what is trained already would be repeated.
    tuned = [plan.path("history", **x._asdict()) for x in plan.trainings() if plan.choice(*x)]
    tunings = [["tunings"]] if any(Path(file).exists() for file in tuned) else []
    runs = [[*SNAKEMAKE, *what, *args.options, *given] for what in (["partitions"], *tunings, [])]
    if not plan.config["budget"]:
        return runs
    # A process of its own, because its measurements may keep a GPU busy until it ends.
    asked = arguments.configuration(args.configfile, args.config)
    return [[sys.executable, "-m", "fedlib", "estimate", *asked], *runs]


def config_options(args: argparse.Namespace, plan: Plan) -> list[str]:
    """The options of a configuration; a file with the chosen cells replaces a budget.

    So all processes of a run make the same cells, whatever has been finished since the choice.
    """
    files, words = args.configfile, args.config
    if plan.config["budget"]:
        files = [*files, plan.path("budget")]
        words = [word for word in words if word.partition("=")[0].strip() not in ("budget", "runs")]
    return arguments.configuration(files, words)


def start(step: list[str]) -> None:
    """Run a process, which shares the lock of the folder; end with its status if it fails."""
    shared, files = locks.share()
    environment = {console.VARIABLE: "1", **os.environ, **shared}
    # Ctrl-C reaches the process too, which ends when everything is saved.
    interrupts = []
    before = signal.signal(signal.SIGINT, lambda *_: interrupts.append(True))
    process = subprocess.Popen(step, env=environment, pass_fds=files)
    signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    status = process.wait()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, before)
    if interrupts:
        print("interrupted: the same command goes on from where it stopped", file=sys.stderr)
        sys.exit(command.INTERRUPTED)
    if status:
        sys.exit(status if status > 0 else 128 - status)


def show(plan: Plan) -> None:
    """Print the first table of each paper, and the paths of all results.

    Tables are left out if runs were chosen by their cost.
    """
    papers = {} if plan.config["budget"] else plan.papers
    for name, paper in papers.items():
        if paper.tables:
            path = Path(plan.path("table_md", paper=name, table=next(iter(paper.tables))))
            if not path.exists():
                raise DataError(f"{path} does not exist; run the workflow again")
            print(f"\n{paper.title}\n\n{path.read_text(encoding='utf-8').strip()}")
    results, figures = plan.path("results"), plan.path("figures")
    print(
        f"\nReport:   {results}/report.html (open it in a browser), {results}/REPORT.md"
        f"\nTables:   {results}/tables/ (csv, json, md, tex)"
        f"\nFigures:  {figures}/ (pdf, png, svg)"
        f"\nNumbers:  {results}/metrics/ (csv, parquet; one row per value)"
    )


def tell(lines) -> None:
    """Print lines, before the output of any process that follows."""
    for line in lines:
        print(line, flush=True)


def _result_times(plan: Plan) -> dict[str, int]:
    """Times of the existing results of a workflow, in nanoseconds, by path."""
    paths = [path for path in map(Path, plan.targets()) if path.exists()]
    return {str(path): path.stat().st_mtime_ns for path in paths}
