"""Measure which executor is fastest for a run on this machine, for `fedlib.run.calibration`.

`make calibrate` measures the runs of a configuration and remembers what it found.
Training and evaluation import nothing of this module, so that an edit of how executors are measured
repeats no run.

Noise cannot make a choice flip from one run to the next, as nothing is measured twice unless asked
for. A measurement replaces the rule's executor only where another is `MARGIN` times as fast, or
`ALIKE` times if both go client by client. It is taken with one thread, so that more workers, too,
give the same bits as one.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedlib import seals
from fedlib.engine.choice import choose, goes_one_by_one, rule
from fedlib.engine.device import DeviceData
from fedlib.engine.rewriting import available
from fedlib.methods.base import Method
from fedlib.run.calibration import cohort_sizes, file, remembered
from fedlib.run.simulate import Course, Simulation

MARGIN = 1.3  # times as fast as the rule's executor, to be taken instead
ALIKE = 1.1  # likewise, if both go client by client and need the same memory
SECONDS = 0.15  # what the measured rounds of one executor may take, beyond the first
HOPELESS = 4  # times the first round of another executor, after which one is not measured further
REPEATS = 5  # rounds measured, if they are as short as that
CLIENTS = 4  # measured at least, so that there is something to batch
STEPS = 2  # local steps of each client at most: the first costs more than those after it
CANDIDATES = {
    "cpu": ("loop", "traced", *(f"traced:{way}" for way in available()), "batched", "batched:32"),
    "cuda": ("loop", "batched", "graphs"),
}


def remember(name: str, entry: dict) -> None:
    """Add a measurement to the file, or replace it there."""
    seals.write_json(file(), remembered() | {name: entry})


def measure(method: Method, data: DeviceData, course: Course) -> dict:
    """Time the executors on shortened rounds of a run -> {"executor": ..., "seconds": {...}}

    With {"not_traced": {reason: shapes}} where "traced" went on as the loop.
    Real clients and batches, in a cohort and with epochs as small as the time demands; nothing
    that a run draws or remembers is touched. A second or so for light models.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        short = _shortened(method)
        clients = _affordable(short, data, course)
        candidates = [c for c in CANDIDATES[data.device.type] if _block(c) < len(clients)]
        rounds = {name: _rounds(name, short, data, course, clients) for name in candidates}
        times = {name: [_timed(run, data.device)] for name, run in rounds.items()}
        notes = [run.notes for run in rounds.values()]
        # The first round also sets things up. Who is this slow even so needs no second one.
        bound = HOPELESS * min(first for (first,) in times.values())
        rounds = {name: run for name, run in rounds.items() if times[name][0] <= bound}
        for _ in range(REPEATS):  # in turn, so that a busy moment meets all of them
            for name, run in rounds.items():
                if sum(times[name][1:]) < SECONDS:
                    times[name].append(_timed(run, data.device))
        seconds = {name: min(found) for name, found in times.items()}
    finally:
        torch.set_num_threads(before)
    reasons = {reason: n for note in notes for reason, n in note.get("not_traced", {}).items()}
    found = {"executor": decide(seconds, rule(method.task)), "seconds": seconds}
    return found | ({"not_traced": reasons} if reasons else {})


def decide(seconds: dict[str, float], prior: str) -> str:
    """The fastest executor of those that beat `prior` by their margin; `prior` if none does."""
    for name in sorted(seconds, key=seconds.__getitem__):
        if seconds[prior] > _margin(name, prior) * seconds[name]:
            return name
    return prior


def reason(seconds: dict[str, float], prior: str) -> str:
    """Why `decide` does not take the fastest executor; "" where it does."""
    fastest = min(seconds, key=seconds.__getitem__)
    if fastest == decide(seconds, prior):
        return ""
    return (
        f"{fastest} is {seconds[prior] / seconds[fastest]:.2f} times as fast as {prior}, the "
        f"rule's choice, and would be taken from {_margin(fastest, prior)} times on"
    )


def _margin(name: str, prior: str) -> float:
    return ALIKE if goes_one_by_one(name) and goes_one_by_one(prior) else MARGIN


def _block(candidate: str) -> int:
    """Clients in a block, if the setting says; a cohort without more than those is one block."""
    return 0 if goes_one_by_one(candidate) else int(candidate.partition(":")[2] or 0)


def _shortened(method: Method) -> Method:
    """The method with few local steps, unless its number of steps is part of what it is."""
    if method.local.steps is not None:
        return method
    try:
        shorter: dict[str, Any] = {"local": replace(method.local, steps=STEPS)}
        return replace(method, **shorter)
    except ValueError:  # AFL does one step, L2SGD draws their number
        return method


def _affordable(method: Method, data: DeviceData, course: Course) -> np.ndarray:
    """Clients for a measured round: those of a cohort, as many as there is time for.

    The time is that of client by client, of which the others' are not many times more.
    """
    size, _ = cohort_sizes(data, course)
    seen = data.federation.ids("seen")
    largest = seen[np.argsort(-data.federation.train.sizes[seen], kind="stable")]
    spread = np.sort(largest[np.linspace(0, len(largest) - 1, size).astype(int)])
    few = spread[:: max(1, -(-len(spread) // CLIENTS))][:CLIENTS]
    run = _rounds("loop", method, data, course, few)
    try:
        run()
    except ValueError:  # clustered and decentralised rounds are of everybody
        return spread
    per_client = _timed(run, data.device) / len(few)
    count = min(len(spread), max(len(few), int(SECONDS / max(per_client, 1e-9))))
    return spread[np.unique(np.linspace(0, len(spread) - 1, count).astype(int))]


def _rounds(
    name: str, method: Method, data: DeviceData, course: Course, clients: np.ndarray
) -> Callable[[], Any]:
    """A function that does the next round with `clients` in the executor called `name`."""
    simulation = Simulation(method, data, course, choose(name, method.task))
    state = simulation.init()

    def run() -> None:
        nonlocal state
        state = method.round(state, simulation.cohort(clients, 0))

    run.notes = simulation.executor.notes
    return run


def _timed(run: Callable[[], Any], device: torch.device) -> float:
    """Seconds of a call: of this process's processor on a CPU, where others may be busy too."""
    clock = time.process_time
    if device.type == "cuda":
        clock = time.perf_counter
        torch.cuda.synchronize(device)
    started = clock()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - started
