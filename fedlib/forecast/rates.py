"""The speed of this machine: measured operations per second with a kind of model.

A rate is measured on made-up examples, in about half a second. Runs share a rate if they train the
same model in batches of about the same size with the same executor, device and PyTorch (`facts`).
If steps are short, most time goes into Python, so method and modules must be the same, too. If they
are long, the rate is that of FedAvg (`typical`). A model that is too large to be tried has the rate
of a product of matrices, of which such models mainly consist. `fedlib.forecast.rehearsal` counts
the operations.

A table of processors would not do: the operations per second of one processor differ by a factor of
a hundred between a small linear model and a wide convolution.
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
from fedlib.forecast.rehearsed import Kind, Phase, Rehearsed
from fedlib.run import calibration, scoring
from fedlib.run.simulate import Simulation

STEPS = 2  # local steps of each client in a measured round; 1 if steps are long
SECONDS = 0.1  # for all measured rounds together, unless one takes longer
ROUNDS = 5  # most rounds that are measured
# Approximate limit for a measured round or evaluation; batches are made smaller for it.
OPERATIONS = {"cpu": 1e10, "cuda": 1e12}
SMALLEST = 4  # least number of examples in a batch
TOGETHER = 16  # clients that are measured if they are batched
# Operations, about two milliseconds; in longer steps, launching them and gates hardly count.
LONG_STEP = 1e8
LARGEST = 3e7  # most parameters of a model that is tried: it takes a dozen times their memory
WIDE, COPIED = 1024, 8  # rows of a matrix; approximate copies of a client's model in a round
SCORED = 64  # most examples of each client and split that are scored


class Rate(NamedTuple):
    """The speed of a machine.

    Attributes:
      fold, score: operations per second in local steps, and in scoring.
      client: further seconds of a round for each client.
    """

    fold: float
    score: float
    client: float

    def of(self, kind: Kind) -> float:
        """Operations per second of one kind."""
        return getattr(self, kind)


def machine(device: str) -> dict:
    """Facts about this machine on which a rate depends: name of the device, version of PyTorch."""
    return {"device": calibration.device_name(torch.device(device)), "torch": torch.__version__}


def typical(spec: dict, sizes: Sizes, rehearsed: Rehearsed) -> dict | None:
    """Specification of FedAvg with the same model, which has the same rate if steps are long.

    None for a run with a rate of its own: with short steps, or several architectures.

    Args:
      rehearsed: rehearsal of the run.
    """
    several = any(isinstance(module, list | tuple) for module in spec["modules"].values())
    operations = _batch_size(spec, sizes) * rehearsed.flops_by_example(Phase.ROUND, Kind.FOLD)
    if operations < LONG_STEP or several:
        return None
    local = {"solver": "sgd", "lr": made_up.SLOW, "batch_size": spec["local"]["batch_size"]}
    plain = {"method": "fedavg", "params": {}, "modules": {}, "participation": {}}
    return {**spec, **plain, "local": local}


def facts(spec: dict, sizes: Sizes, executor: str, machine: dict) -> dict:
    """All facts on which a rate depends.

    Args:
      machine: from the function of this name.
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
    """Examples of a typical batch: at most those of a client of average size."""
    seen = [n for n, g in zip(sizes.train, sizes.group, strict=True) if g == "seen"]
    return max(2, min(spec["local"]["batch_size"], round(sum(seen) / max(len(seen), 1))))


def of_products(device: str) -> Rate:
    """Rate of products of matrices; `client` is per number of a model. One thread on a CPU."""
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
      rehearsed: rehearsal of the run, with its operations per example.
      device: "cpu" or "cuda"; a CPU uses one thread.
      executor: from the configuration.
    """
    with _one_thread():
        return _measured(_simulation(spec, sizes, rehearsed, device, executor), rehearsed)


def _simulation(
    spec: dict, sizes: Sizes, rehearsed: Rehearsed, device: str, executor: str
) -> Simulation:
    """A run of a few clients with two batches of about the real size, and a `Timed` executor."""
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
        # There is time for more clients together.
        together = min(TOGETHER, BLOCK, max(clients, afford // size))
        simulation = build(clients=together)
    return replace(simulation, executor=Timed(inner, _clock_of(simulation.data.device)))


def _measured(simulation: Simulation, rehearsed: Rehearsed) -> Rate:
    timed, clock = simulation.executor, _clock_of(simulation.data.device)
    everyone = simulation.federation.ids("seen")
    observed = partial(simulation.everyone, round=1)
    # Once without the clock: steps are recorded then, and modules imported.
    state = simulation.method.round(simulation.init(), simulation.cohort(everyone, 0))
    scoring.during_training(simulation.method, state, observed)
    timed.restart()
    begun, number = clock(), 0
    for number in _turns(clock):
        state = simulation.method.round(state, simulation.cohort(everyone, number))
    besides = clock() - begun - sum(timed.seconds.values())
    fold, score = (timed.rate(kind, rehearsed, Phase.ROUND) for kind in (Kind.FOLD, Kind.SCORE))
    client = max(0.0, besides) / ((number + 1) * len(everyone))
    timed.restart()
    for _ in _turns(clock):
        scoring.during_training(simulation.method, state, observed)
    score = timed.rate(Kind.SCORE, rehearsed, Phase.EVALUATION) or score or fold
    return Rate(fold or score, score, client)


def _turns(clock: Callable[[], float]) -> Iterator[int]:
    """Numbers of measurements, until they have taken long enough."""
    begun = clock()
    for number in range(ROUNDS):
        if number and clock() - begun >= SECONDS:
            return
        yield number


class Timed:
    """An executor that measures its time for local steps and for scoring.

    Attributes:
      seconds, examples: totals so far, by kind.
    """

    def __init__(self, inner: Executor, clock: Callable[[], float]):
        self._inner, self._clock = inner, clock
        self.restart()

    def restart(self) -> None:
        """Set the totals to 0."""
        self.seconds = dict.fromkeys(Kind, 0.0)
        self.examples = dict.fromkeys(Kind, 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def rate(self, kind: Kind, rehearsed: Rehearsed, phase: Phase) -> float:
        """Operations per second in local steps, or in scoring; 0 if there were none."""
        if not self.seconds[kind]:
            return 0.0
        by_example = rehearsed.flops_by_example(phase, kind)
        return by_example * self.examples[kind] / self.seconds[kind]

    def fold(self, work, drawn, *args):
        """See `Executor.fold`."""
        begun = self._clock()
        result = self._inner.fold(work, drawn, *args)
        self.seconds[Kind.FOLD] += self._clock() - begun
        self.examples[Kind.FOLD] += sum(batches.examples for batches in drawn)
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
    """A clock: CPU time of the process on a CPU, where other processes may be busy, or GPU time."""
    if device.type != "cuda":
        return time.process_time

    def now() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return now
