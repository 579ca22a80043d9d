"""A process that works on and on, and what it holds meanwhile: `python tests/soak.py SECONDS`.

Again and again it trains, evaluates and saves small federations by several methods, as the jobs of
the workflow do; sends the same jobs to a process that forks them; and shows a made-up workflow on
the console. After each time it counts the memory, open files and threads of itself and of the
process that forks. Linux only, as it reads /proc.
"""

import contextlib
import gc
import io
import itertools
import json
import logging
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import stages

from fedlib.workflow import warm
from fedlib.workflow.console import Console

METHODS = {"fedavg": {}, "fedem": {"num_experts": 2}, "local": {}}
ROUNDS = 20
CONSOLE_JOBS = 100
LEAST = 5  # samples, however short the time
WARM_UP = 0.25  # of the samples, in which caches fill
SPREAD_MB = 4.0  # by which memory goes up and down without growing


class Held(NamedTuple):
    """What a process holds: megabytes of memory that is its own, open files, threads."""

    mb: float
    files: int
    threads: int


def held(pid: int) -> Held:
    """By a process, now."""
    folder = Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
    )
    mb = int(status["RssAnon"].split()[0]) / 1024
    return Held(mb, len(list((folder / "fd").iterdir())), int(status["Threads"]))


def growth(samples: list[Held]) -> list[str]:
    """What grows, in words; nothing for a process that only goes up and down.

    After the warm-up, the least of the last third is compared with the most of the first one.
    """
    settled = samples[int(WARM_UP * len(samples)) :]
    third = max(1, len(settled) // 3)
    told = []
    for name in Held._fields:
        values = [getattr(sample, name) for sample in settled]
        before, after = max(values[:third]), min(values[-third:])
        if after > before + (SPREAD_MB if name == "mb" else 0):
            told.append(f"{name} from at most {before:g} to at least {after:g}")
    return told


def work(folder: Path) -> None:
    """Train, evaluate and save by each method, in this process."""
    for method, params in METHODS.items():
        spec = {**stages.SPEC, "method": method, "params": params, "rounds": ROUNDS}
        for stage, arguments in jobs(folder / method, spec):
            with contextlib.redirect_stdout(io.StringIO()):
                assert stages.run_here(stage, arguments) == 0, (method, stage)
        shutil.rmtree(folder / method)


def send(folder: Path, client: list[str]) -> None:
    """A training and an evaluation in forks of the process that is there for it."""
    spec = {**stages.SPEC, "rounds": ROUNDS}
    for stage, arguments in jobs(folder / "sent", spec):
        words = [*client, f"scripts/{stage}.py", *arguments]
        subprocess.run(words, cwd=stages.ROOT, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(folder / "sent")


def jobs(folder: Path, spec: dict) -> list[tuple[str, list[str]]]:
    """Stages and arguments of a run; its shards are beside the folder."""
    return [("train", stages.options(folder, spec)), ("evaluate", stages.evaluation(folder, spec))]


def show() -> None:
    """A workflow of that many jobs on a console, from its beginning to its end."""
    console = Console(io.StringIO())
    events = [("run_info", {"stats": {"train": CONSOLE_JOBS, "total": CONSOLE_JOBS}})]
    for number in range(CONSOLE_JOBS):
        about = {"jobid": number, "rule_name": "train", "wildcards": {}, "output": []}
        events += [("job_info", about), ("job_finished", {"job_id": number})]
    for event, about in events:
        record = logging.LogRecord("snakemake", logging.INFO, "", 0, "", None, None)
        vars(record).update({"event": event, **about})
        console.handle(record)
    console.close()
    console.clock.join()


def soak(seconds: float, folder: Path) -> Iterator[dict[str, Held]]:
    """What this process and the one that forks hold, time after time, for so many seconds."""
    stages.shards(folder)
    client = shlex.split(warm.start("train", "evaluate"))
    [server] = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    ends, times = time.monotonic() + seconds, itertools.count()
    while next(times) < LEAST or time.monotonic() < ends:
        work(folder)
        send(folder, client)
        show()
        gc.collect()
        yield {"own": held(os.getpid()), "forking": held(int(server))}


def main(seconds: float) -> None:
    """Print what is held, a line of JSON each time."""
    with tempfile.TemporaryDirectory() as folder:
        for found in soak(seconds, Path(folder)):
            print(json.dumps({name: list(one) for name, one in found.items()}), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
