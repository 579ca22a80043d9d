#!/usr/bin/env python3
"""Carry out a target of the Makefile: `python scripts/workflow.py demo`.

The values come from the environment, where no shell changes them: CONFIG (for Snakemake's
configuration), ARGS (options of Snakemake), SCALE (demo, demo-all, reduced or full; default: demo),
PAPER (for keep), WHAT (for list and compare), A and B (for compare) and FROM (for figures-from).
They are checked first. One workflow at a time works in a folder.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of imports; see command.run

from fedlib import locks
from fedlib.workflow import command, console, errands, narrowing, preflight
from fedlib.workflow.provenance import ROOT

YES = ("y", "yes")
RUNS = ("demo", "demo-all", "reduced", "reproduce")
# These may go beside a workflow that runs.
READERS = ("plan", "why", "list", "compare", "calibrate", "report", "keep", "figures-from")
TARGETS = (*RUNS, *READERS, "clean", "unlock")
DEFAULTS = dict.fromkeys(("CONFIG", "ARGS", "SCALE", "WHAT", "A", "B", "FROM"), "") | {
    "PAPER": "pfedmm"
}


def main() -> None:
    """Check the order, take the folder, and run its steps."""
    parser = argparse.ArgumentParser(description=command.described(__doc__))
    parser.add_argument("target", choices=TARGETS)
    target = parser.parse_args().target
    os.chdir(ROOT)
    values = {name: os.environ.get(name) or default for name, default in DEFAULTS.items()}
    order = errands.read(target, ROOT, values)
    if target in errands.SCALES:
        narrowing.check(order.plan)
        preflight.check_frames(order.plan)
        preflight.check(order.plan)
        for remark in narrowing.remarks(order.plan):
            print(remark, flush=True)
    elif target == "plan":
        preflight.check(order.plan)  # which would else be after minutes of estimating
    told = " ".join(f"{k}={values[k]!r}" for k in DEFAULTS if values[k] != DEFAULTS[k])
    reads = target in READERS or order.is_preview
    lock = None if reads else locks.hold_folder(command=f"make {target} {told}".strip())
    if target == "clean":
        _clean(order)
    elif target != "unlock":  # nobody is at work here, so that the locks of the dead are gone now
        before = {} if reads else errands.made(order.plan)
        *first, last = errands.steps(order)
        for step in first:
            _run(step, lock)
        if target in (*RUNS, "plan"):  # what is cut into clients now
            for remark in narrowing.smaller(order.plan):
                print(remark, flush=True)
        _run(last, lock)
        if not reads and errands.made(order.plan) == before:
            print(f"Nothing to do: {order.plan.path('report_html')} is up to date.")
        elif not reads:
            _run(errands.closing(order), lock)


def _clean(order: errands.Order) -> None:
    """Delete results and figures, once somebody at a terminal has agreed."""
    folders = errands.made_folders(order.plan, ROOT)
    for folder in folders:
        print(f"{folder.relative_to(ROOT)}: {errands.size(folder)}")
    if folders and sys.stdin.isatty() and input("Delete? [y/N] ").strip().lower() not in YES:
        print("Nothing was deleted.")
        return
    errands.clean(folders)
    print("Deleted." if folders else f"There is nothing of {order.plan.folder} to delete.")
    print("data/raw is untouched. Delete it by hand if you want to download again.")


def _run(step: list[str], lock) -> None:
    """Run one command; ends this process with its status if it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in DEFAULTS}
    environment.setdefault(console.VARIABLE, "1")
    passed = ()
    if lock is not None:
        environment[locks.DESCRIPTOR] = str(lock.fileno())
        passed = (lock.fileno(),)
    # Ctrl-C reaches the command too, and it is the command that says when all is saved.
    interrupts = []
    before = signal.signal(signal.SIGINT, lambda *_: interrupts.append(True))
    process = subprocess.Popen(step, env=environment, pass_fds=passed)
    signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    status = process.wait()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, before)
    if interrupts:
        sys.exit(command.INTERRUPTED)
    if status:
        sys.exit(status if status > 0 else 128 - status)


if __name__ == "__main__":
    sys.exit(command.run(main))
