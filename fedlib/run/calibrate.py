"""Measure which executor is fastest for a run on this machine, for `fedlib.run.calibration`.

A long training does so before its first round, unless similar runs have been measured. The result
is stored for training and evaluation. They load this module by name, so an edit of the measurement
repeats no run.

Nothing is measured twice, so noise cannot change the choice from one run to the next. A measurement
replaces the rule's executor only if another is `MARGIN` times as fast, or `ALIKE` times if both go
client by client. It uses one thread, so the choice, and every bit, is the same for any number of
workers.
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
from fedlib.run.fitting import tasks_of
from fedlib.run.simulate import Course, Simulation

LONG = 600.0  # least seconds of a run's local steps for a measurement
SLOWEST = 1.0  # upper bound for the seconds of a local step: shorter runs are not timed at all
MARGIN = 1.3  # how many times as fast as the rule's executor another must be
ALIKE = 1.1  # the same if both go client by client and need the same memory
SECONDS = 0.15  # for the measured rounds of one executor after the first
# Longest local step for which clients are batched on a CPU. Launching a step takes a millisecond.
SHORT = 0.02
HOPELESS = 4  # an executor whose first round takes so many times the fastest is dropped
REPEATS = 5  # most rounds that are measured
CLIENTS = 4  # least number of clients in a measured round, for something to batch
STEPS = 2  # most local steps of each client; the first costs more than later ones
CANDIDATES = {
    "cpu": ("loop", "traced", *(f"traced:{way}" for way in available()), "batched", "batched:32"),
    "cuda": ("loop", "batched", "graphs"),
}


def known(run: tuple[Method, DeviceData, Course], report: Callable[[str], None]) -> dict | None:
    """The measurement for runs like this one, taken now if there is none; None for short runs.

    If several jobs begin together, one of them measures and the others wait.

    Args:
      report: called with a line about a new measurement.

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

    None for a run whose `steps` local steps take at most `LONG` seconds. The rounds have real
    clients and batches, in a small cohort and with few steps. The streams and state of the run stay
    the same. Takes about a second for light models.
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
    """The fastest executor that beats `prior` by its margin; `prior` if there is none."""
    for name in sorted(seconds, key=seconds.__getitem__):
        alike = goes_one_by_one(name) and goes_one_by_one(prior)
        if seconds[prior] > (ALIKE if alike else MARGIN) * seconds[name]:
            return name
    return prior


class Rounds:
    """Shortened rounds of a run; each repeats the first round.

    Attributes:
      prior: the executor of the rule.
      clients: of a round, as many as time allows.
      seconds: time of a client's local step with `prior`.
    """

    def __init__(self, method: Method, data: DeviceData, course: Course):
        self.prior = rule(tasks_of(method))
        self._run = _shortened(method), data, course
        self._state = self._simulation(self.prior).init()
        size, _ = cohort_sizes(data, course)
        seen = data.federation.ids("seen")
        largest = seen[np.argsort(-data.federation.train.sizes[seen], kind="stable")]
        spread = np.sort(largest[np.linspace(0, len(largest) - 1, size).astype(int)])
        few = spread[:: max(1, -(-len(spread) // CLIENTS))][:CLIENTS]
        try:
            of_client = self._seconds_of_each(few)
        except ValueError:  # clustered and decentralised rounds need all clients
            few, of_client = spread, self._seconds_of_each(spread)
        steps = num_steps(data.federation.train.sizes[few], self._run[0].local)
        self.seconds = of_client / max(1.0, float(np.mean(steps)))
        if few is not spread:
            least = CLIENTS if self.seconds < SECONDS else 1
            count = min(size, max(least, int(SECONDS / max(of_client, 1e-9))))
            few = spread[np.unique(np.linspace(0, size - 1, count).astype(int))]
        self.clients = few

    def timed(self, candidates: tuple[str, ...]) -> dict[str, float]:
        """Seconds of the shortest round with each executor; leaves out executors that fail."""
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
        # The first round includes initialisation; an executor far slower still needs no second.
        bound = HOPELESS * min(first for (first,) in times.values())
        going = [name for name, (first,) in times.items() if first <= bound]
        for _ in range(REPEATS):  # in turn, so that a busy moment affects all of them
            for name in going:
                if sum(times[name][1:]) < SECONDS:
                    times[name].append(_timed(rounds[name], device))
        return {name: min(found) for name, found in times.items()}

    def _makes_sense(self, candidate: str) -> bool:
        if goes_one_by_one(candidate) or candidate == self.prior:
            return True
        # Blocks matter only if the cohort has more clients than a block.
        has_blocks = int(candidate.partition(":")[2] or 0) < len(self.clients)
        # Batching saves launches, which cost nothing in comparison with long steps, and needs the
        # memory of all clients' activations.
        return has_blocks and (self._run[1].device.type == "cuda" or self.seconds < SHORT)

    def _simulation(self, executor: str) -> Simulation:
        return Simulation(*self._run, choose(executor, self._run[0].task))

    def _seconds_of_each(self, clients: np.ndarray) -> float:
        """Seconds of a round of these clients, per client."""
        run = self._round(self.prior, clients)
        run()  # includes initialisation, so it is not timed
        return _timed(run, self._run[1].device) / len(clients)

    def _round(self, executor: str, clients: np.ndarray) -> Callable[[], Any]:
        """A function that does the first round with an executor."""
        simulation = self._simulation(executor)
        return lambda: simulation.method.round(self._state, simulation.cohort(clients, 0))


def _shortened(method: Method) -> Method:
    """The method with few local steps, unless the method defines their number."""
    if method.local.steps is not None:
        return method
    try:
        shorter: dict[str, Any] = {"local": replace(method.local, steps=STEPS)}
        return replace(method, **shorter)
    except ValueError:  # AFL does one step, L2SGD draws their number
        return method


def _timed(run: Callable[[], Any], device: torch.device) -> float:
    """Seconds of a call; on a CPU the process's CPU time, because other processes may be busy."""
    clock = time.process_time
    if device.type == "cuda":
        clock = time.perf_counter
        torch.cuda.synchronize(device)
    started = clock()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - started
