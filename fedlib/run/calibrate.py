"""Measure which executor is fastest for a run on this machine, for `fedlib.run.calibration`.

A training does so before its first round, if it will take long and nothing is known of such runs.
What it finds is remembered for training and evaluation. They load this module by name, so that an
edit of how executors are measured repeats no run.

Noise cannot make a choice flip from one run to the next, as nothing is measured twice. A
measurement replaces the rule's executor only where another is `MARGIN` times as fast, or `ALIKE`
times if both go client by client. It is taken with one thread, so that more workers, too, give the
same bits as one.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedlib import locks, seals
from fedlib.engine.choice import choose, goes_one_by_one, rule
from fedlib.engine.device import DeviceData
from fedlib.engine.rewriting import available
from fedlib.methods.base import Method
from fedlib.run.calibration import cohort_sizes, file, key, num_steps, remembered
from fedlib.run.simulate import Course, Simulation

LONG = 600.0  # seconds of a run's local steps, from which on its executors are measured
SLOWEST = 1.0  # seconds of a local step: fewer steps than would take `LONG` are not timed
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


def known(run: tuple[Method, DeviceData, Course], report: Callable[[str], None]) -> dict | None:
    """What is remembered of runs like this one, measured now if need be; None for short ones.

    Where several jobs begin at once, one of them measures and the others wait for it.

    Args:
      report: gets a line on what was measured.

    Raises:
      OSError: if nothing can be written to the user's cache.
    """
    method, data, course = run
    size, sizes = cohort_sizes(data, course)
    steps = course.rounds * size * float(np.mean(num_steps(sizes, method.local)))
    if steps * SLOWEST <= LONG:
        return None
    with locks.exclusive(file().with_suffix(".lock"), str(file()), wait=True, report=report):
        if (entry := remembered().get(key(*run))) is None and (entry := measure(*run, steps)):
            seals.write_json(file(), remembered() | {key(*run): entry})
            times = ", ".join(f"{name} {1e3 * s:.1f} ms" for name, s in entry["seconds"].items())
            report(f"fastest executor here: {entry['executor']} ({times})")
    return entry


def measure(
    method: Method, data: DeviceData, course: Course, steps: float = float("inf")
) -> dict | None:
    """Time the executors on shortened rounds of a run -> {"executor": ..., "seconds": {...}}

    None for a run whose `steps` local steps take no more than `LONG` seconds. Real clients and
    batches, in a cohort and with epochs as small as the time demands; nothing that a run draws or
    remembers is touched. A second or so for light models.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rounds = Rounds(method, data, course)
        if steps * rounds.seconds <= LONG:
            return None
        seconds = rounds.timed(CANDIDATES[data.device.type])
    finally:
        torch.set_num_threads(before)
    return {"executor": decide(seconds, rounds.prior), "seconds": seconds}


def decide(seconds: dict[str, float], prior: str) -> str:
    """The fastest executor of those that beat `prior` by their margin; `prior` if none does."""
    for name in sorted(seconds, key=seconds.__getitem__):
        alike = goes_one_by_one(name) and goes_one_by_one(prior)
        if seconds[prior] > (ALIKE if alike else MARGIN) * seconds[name]:
            return name
    return prior


class Rounds:
    """Shortened rounds of a run: the first one, again and again.

    Attributes:
      prior: the executor of the rule.
      clients: as many of a cohort as there is time for.
      seconds: that a local step of a client takes with `prior`.
    """

    def __init__(self, method: Method, data: DeviceData, course: Course):
        self.prior = rule(method.task)
        self._run = _shortened(method), data, course
        self._state = self._simulation(self.prior).init()
        size, _ = cohort_sizes(data, course)
        seen = data.federation.ids("seen")
        largest = seen[np.argsort(-data.federation.train.sizes[seen], kind="stable")]
        spread = np.sort(largest[np.linspace(0, len(largest) - 1, size).astype(int)])
        few = spread[:: max(1, -(-len(spread) // CLIENTS))][:CLIENTS]
        try:
            of_client = self._seconds_of_each(few)
        except ValueError:  # clustered and decentralised rounds are of everybody
            few, of_client = spread, self._seconds_of_each(spread)
        steps = num_steps(data.federation.train.sizes[few], self._run[0].local)
        self.seconds = of_client / max(1.0, float(np.mean(steps)))
        if few is not spread:
            least = CLIENTS if self.seconds < SECONDS else 1
            count = min(size, max(least, int(SECONDS / max(of_client, 1e-9))))
            few = spread[np.unique(np.linspace(0, size - 1, count).astype(int))]
        self.clients = few

    def timed(self, candidates: tuple[str, ...]) -> dict[str, float]:
        """Seconds of a round with each executor, its shortest; without those that cannot do it."""
        device = self._run[1].device
        rounds, times = {}, {}
        for name in candidates:
            if self._makes_sense(name):
                rounds[name] = self._round(name, self.clients)
                try:
                    times[name] = [_timed(rounds[name], device)]
                except Exception:  # such as a user's layer that cannot be batched
                    if name == self.prior:
                        raise
        # The first round also sets things up. Who is this slow even so needs no second one.
        bound = HOPELESS * min(first for (first,) in times.values())
        going = [name for name, (first,) in times.items() if first <= bound]
        for _ in range(REPEATS):  # in turn, so that a busy moment meets all of them
            for name in going:
                if sum(times[name][1:]) < SECONDS:
                    times[name].append(_timed(rounds[name], device))
        return {name: min(found) for name, found in times.items()}

    def _makes_sense(self, candidate: str) -> bool:
        if goes_one_by_one(candidate) or candidate == self.prior:
            return True
        # A cohort without more clients than are in a block is one block.
        has_blocks = int(candidate.partition(":")[2] or 0) < len(self.clients)
        # Clients are put together to launch less: that is nothing beside steps as long as this.
        return has_blocks and (self._run[1].device.type == "cuda" or self.seconds < SECONDS)

    def _simulation(self, executor: str) -> Simulation:
        return Simulation(*self._run, choose(executor, self._run[0].task))

    def _seconds_of_each(self, clients: np.ndarray) -> float:
        """Seconds of a round of these clients, for each of them."""
        run = self._round(self.prior, clients)
        run()  # which also sets things up
        return _timed(run, self._run[1].device) / len(clients)

    def _round(self, executor: str, clients: np.ndarray) -> Callable[[], Any]:
        """A function that does the first round in the executor of that name."""
        simulation = self._simulation(executor)
        return lambda: simulation.method.round(self._state, simulation.cohort(clients, 0))


def _shortened(method: Method) -> Method:
    """The method with few local steps, unless its number of steps is part of what it is."""
    if method.local.steps is not None:
        return method
    try:
        shorter: dict[str, Any] = {"local": replace(method.local, steps=STEPS)}
        return replace(method, **shorter)
    except ValueError:  # AFL does one step, L2SGD draws their number
        return method


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
