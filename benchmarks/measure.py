"""Measure one contender on one work item in this process; prints one line of JSON.

python -m benchmarks.measure ITEM CONTENDER[/SETTING] --seconds S --cores N
"""

import argparse
import importlib.metadata
import json
import os

from benchmarks.clock import Clock
from benchmarks.contenders import CONTENDERS
from benchmarks.items import ITEMS


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("item", choices=ITEMS)
    parser.add_argument("contender")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--cores", type=int, required=True)
    args = parser.parse_args()
    keep_to(args.cores)
    print(json.dumps(measured(args.item, args.contender, args.seconds, args.cores)), flush=True)
    os._exit(0)  # without waiting for what a simulator left running; the caller ends that


def keep_to(cores: int) -> None:
    """Let this process and its children use no more than so many cores; some take all they see."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])


def measured(item: str, contender: str, seconds: float, cores: int) -> dict:
    """Rounds, samples, seconds, samples/s, peak memory in bytes, versions, and what was tuned."""
    name, _, setting = contender.partition("/")
    clock = Clock(seconds)
    options = {"pfedmm": True} if name == "pfedmm" else {}
    tuned = CONTENDERS[name].load().run(ITEMS[item], setting, cores, clock, **options)
    versions = {p: importlib.metadata.version(p) for p in CONTENDERS[name].packages}
    return clock.result() | {"versions": versions, "tuned": tuned or {}}


if __name__ == "__main__":
    main()
