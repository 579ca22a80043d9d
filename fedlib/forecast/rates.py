"""How fast this machine is: operations that it does in a second with a kind of model, measured.

A rate is measured on made-up examples, in about half a second. Runs share one if they train the
same model in batches of about the same size with the same executor, on the same device and PyTorch
(`facts`); where steps are short, also by the same method with the same modules, as it is Python
that takes the time. Where they are long, it is FedAvg's (`typical`). A model too large to be
tried out has the rate of a product of matrices, which such models consist of. How many operations
there are is counted, see `fedlib.forecast.rehearsal`.

No table of processors could take its place: the operations per second of one processor differ by a
factor of a hundred between a small linear model and a wide convolution.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch

from fedlib.data.sizes import Sizes
from fedlib.engine.choice import BLOCK, ONE_BY_ONE, choose
from fedlib.engine.executors import Executor
from fedlib.errors import DataError
from fedlib.forecast import made_up
from fedlib.forecast.rehearsal import Kind, Phase, Rehearsed
from fedlib.run import calibration, scoring
from fedlib.run.simulate import Simulation

STEPS = 2  # local steps of each client in a measured round, or one of costly ones
SECONDS = 0.1  # that measured rounds take together, if one is not longer
ROUNDS = 5  # measured at most
# Of a measured round or evaluation, about: batches shrink to that.
OPERATIONS = {"cpu": 1e10, "cuda": 1e12}
SMALLEST = 4  # examples of a batch, however costly they are
TOGETHER = 16  # clients measured where they are batched
# Operations, about two milliseconds, beside which what launches them is little, and so is a gate.
LONG_STEP = 1e8
LONG_ROUND = 0.5  # seconds, beside which what is done once in the first round is little
LARGEST = 3e7  # numbers of a model that is tried out: it takes a dozen times as much memory
WIDE, COPIED = 1024, 8  # rows of a matrix; times that a round copies a client's model, about
SCORED = 64  # examples of each client and split, or as few as a batch has


class Rate(NamedTuple):
    """How fast a machine is.

    Attributes:
      fold, score: operations a second of local steps, and of scoring.
      client: seconds that a round takes besides for each client.
    """

    fold: float
    score: float
    client: float

    def of(self, kind: Kind) -> float:
        """Operations a second of one kind."""
        return getattr(self, kind)


def machine(device: str) -> dict:
    """What of this machine a rate depends on: name of the device and version of PyTorch."""
    return {"device": calibration.device_name(torch.device(device)), "torch": torch.__version__}


def typical(spec: dict, sizes: Sizes, rehearsed: Rehearsed) -> dict | None:
    """The run whose rate a run has: FedAvg of its model where steps are long; None for itself.

    Args:
      rehearsed: the same run.
    """
    several = any(isinstance(module, list | tuple) for module in spec["modules"].values())
    operations = _batch_size(spec, sizes) * rehearsed.flops_by_example(Phase.ROUND, Kind.FOLD)
    if operations < LONG_STEP or several:
        return None
    local = {"solver": "sgd", "lr": made_up.SLOW, "batch_size": spec["local"]["batch_size"]}
    plain = {"method": "fedavg", "params": {}, "modules": {}, "participation": {}}
    return {**spec, **plain, "local": local}


def facts(spec: dict, sizes: Sizes, executor: str, machine: dict) -> dict:
    """What a rate depends on.

    Args:
      machine: as the function of this name gives it.
    """
    modules = {
        name: [{k: one[k] for k in ("model", "params")} for one in _listed(module)]
        for name, module in spec["modules"].items()
    }
    return {
        "method": spec["method"],
        "model": [spec["model"], spec["model_params"]],
        "modules": modules,
        "precision": spec["precision"],
        "batch": 1 << (_batch_size(spec, sizes) - 1).bit_length(),
        "executor": executor,
        **machine,
    }


def _listed(module: dict | list) -> list[dict]:
    return list(module) if isinstance(module, list | tuple) else [module]


def _batch_size(spec: dict, sizes: Sizes) -> int:
    """Examples of a typical batch: no more than a client of average size has."""
    seen = [n for n, g in zip(sizes.train, sizes.group, strict=True) if g == "seen"]
    return max(2, min(spec["local"]["batch_size"], round(sum(seen) / max(len(seen), 1))))


def of_products(device: str) -> Rate:
    """What a product of matrices and a copy take, on one thread of a CPU; see `LARGEST`."""
    x, clock = torch.zeros(WIDE, WIDE, device=device), _clock_of(torch.device(device))

    def seconds(fn: Callable) -> float:
        fn()
        begun = clock()
        for _ in range(ROUNDS):
            fn()
        return (clock() - begun) / ROUNDS

    with _one_thread():
        rate = 2 * WIDE**3 / seconds(lambda: x @ x)
        return Rate(rate, rate, COPIED * seconds(x.clone) / x.numel())


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure(spec: dict, sizes: Sizes, rehearsed: Rehearsed, *, device: str, executor: str) -> Rate:
    """Time a round and an evaluation.

    Args:
      rehearsed: the same run, whose operations by example it has.
      device: "cpu" or "cuda"; on a CPU one thread computes.
      executor: as the configuration gives it.
    """
    with _one_thread():
        return _measured(_simulation(spec, sizes, rehearsed, device, executor), rehearsed)


def _simulation(
    spec: dict, sizes: Sizes, rehearsed: Rehearsed, device: str, executor: str
) -> Simulation:
    """A few clients with two batches of about the real size, and an executor that is `Timed`."""
    operations = rehearsed.flops_by_example(Phase.ROUND, Kind.FOLD) or 1.0
    clients = max(2, made_up.most_architectures(spec))
    afford = int(OPERATIONS[device] / (operations * clients * STEPS))
    size = max(SMALLEST, min(_batch_size(spec, sizes), afford))
    steps = STEPS if afford >= SMALLEST else 1
    local = spec["local"] | {"batch_size": size, "steps": steps, "epochs": 1}
    own = spec | {"local": local}
    parts = rehearsed.of(Phase.EVALUATION, Kind.SCORE)
    scoring = clients * sum(load.share * load.flops for _, load in parts) or 1.0
    scored = max(SMALLEST, min(SCORED, int(OPERATIONS[device] / scoring)))
    examples = {"train": (steps * size, steps * size), "scored": scored}
    build = partial(made_up.simulation, own, sizes, None, device=device, **examples)
    try:
        simulation = build(clients=clients)
    except (ValueError, DataError):  # AFL does one step, L2SGD draws their number
        own["local"] = {k: v for k, v in local.items() if k != "steps"}
        simulation = build(clients=clients)
    inner = choose(executor, simulation.method.task)
    if inner.name not in ONE_BY_ONE and afford > size:
        # More clients together, as there is time for them.
        together = min(TOGETHER, BLOCK, max(clients, afford // size))
        simulation = build(clients=together)
    return replace(simulation, executor=Timed(inner, _clock_of(simulation.data.device)))


def _measured(simulation: Simulation, rehearsed: Rehearsed) -> Rate:
    timed, clock = simulation.executor, _clock_of(simulation.data.device)
    everyone = simulation.federation.ids("seen")
    state, begun, number = simulation.init(), clock(), 0
    state = simulation.method.round(state, simulation.cohort(everyone, number))  # sets up
    if clock() - begun < LONG_ROUND:
        timed.restart()
        begun = clock()
        for number in _turns(clock):
            state = simulation.method.round(state, simulation.cohort(everyone, number))
    besides = clock() - begun - sum(timed.seconds.values())
    fold, score = (timed.rate(kind, rehearsed, Phase.ROUND) for kind in (Kind.FOLD, Kind.SCORE))
    client = max(0.0, besides) / ((number + 1) * len(everyone))
    timed.restart()
    for _ in _turns(clock):
        scoring.during_training(simulation.method, state, partial(simulation.everyone, round=1))
    score = timed.rate(Kind.SCORE, rehearsed, Phase.EVALUATION) or score or fold
    return Rate(fold or score, score, client)


def _turns(clock: Callable[[], float]) -> Iterator[int]:
    """Numbers of what is measured, until that has taken long enough."""
    begun = clock()
    for number in range(ROUNDS):
        if number and clock() - begun >= SECONDS:
            return
        yield number


class Timed:
    """An executor that notes how long it takes for local steps, and for scoring.

    Attributes:
      seconds, examples: so far, by kind.
    """

    def __init__(self, inner: Executor, clock: Callable[[], float]):
        self._inner, self._clock = inner, clock
        self.restart()

    def restart(self) -> None:
        """Forget everything so far."""
        self.seconds = dict.fromkeys(Kind, 0.0)
        self.examples = dict.fromkeys(Kind, 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def rate(self, kind: Kind, rehearsed: Rehearsed, phase: Phase) -> float:
        """Operations a second of local steps, or of scoring; 0 if there were none."""
        if not self.seconds[kind]:
            return 0.0
        by_example = rehearsed.flops_by_example(phase, kind)
        return by_example * self.examples[kind] / self.seconds[kind]

    def fold(self, work, drawn, *args):
        """See `Executor.fold`."""
        begun = self._clock()
        result = self._inner.fold(work, drawn, *args)
        self.seconds[Kind.FOLD] += self._clock() - begun
        self.examples[Kind.FOLD] += sum(s.size for batches in drawn for s in batches.steps)
        return result

    def each(self, work, fn, per_client, split, batch_size):
        """See `Executor.each`."""
        begun = self._clock()
        result = self._inner.each(work, fn, per_client, split, batch_size)
        self.seconds[Kind.SCORE] += self._clock() - begun
        examples = work.data.federation.split(split).sizes[work.ids].sum()
        self.examples[Kind.SCORE] += int(examples)
        return result


def _clock_of(device: torch.device) -> Callable[[], float]:
    """Seconds of this process's processor on a CPU, where others may be busy; else of a card."""
    if device.type != "cuda":
        return time.process_time

    def now() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return now
