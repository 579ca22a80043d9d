"""Measures FedAvg's speed on this machine, and writes the estimates of runs.

A round of FedAvg is timed for each model, on made-up examples of the right shape. Sizes and speeds
are kept beside the estimates, so a second plan measures nothing.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fedlib import seals
from fedlib.data import downloads, sizes
from fedlib.engine import ambient
from fedlib.engine.choice import choose
from fedlib.environment import environment
from fedlib.errors import ConfigError, DataError, DivergedError
from fedlib.files import digest
from fedlib.forecast.estimates import DataSize, Estimate, Request, Speed, estimate
from fedlib.forecast.own_trial import make_up
from fedlib.results import open_result
from fedlib.run import build
from fedlib.run.operations import Operations
from fedlib.run.usage import CPU, MEMORY, WALL
from fedlib.run_spec import RunSpec

TELL_EVERY = 10  # seconds between lines of progress
# Seconds of a timed round: if one takes less, the next has more examples. One without a whole batch
# must take longer, because the update of the parameters is a large part of it.
ENOUGH, PLENTY = 0.1, 1.0
GROWTH = 4
OF_MODEL = ("model", "model_params", "precision", "class_weights")  # entries of a run
MOST_CLIENTS = 32  # in a timed round
MOST_STEPS = 4  # of a client
# Most parameters of a model that is tried, which takes a dozen times their memory. The operations
# of a larger one are counted without memory, and divided by those of a product of matrices.
LARGEST = 3e7
WIDE = 1024  # rows of a matrix
SLOW = 1e-6  # learning rate that diverges on no examples


def write(path: Path, asked: Sequence[Request], device: str, raw: str) -> None:
    """Estimate runs, and add them to the file of estimates, if these are of this machine.

    Args:
      path: of the estimates.
      device: "cpu" or "cuda".
      raw: the folder data/raw, see `fedlib.data.sizes.sizes`.

    Raises:
      ConfigError: for a federation that cannot be dealt as declared.
    """
    unit, kind = ("GPU", "gpu") if device == "cuda" else ("core", "cpu")
    head, kept = {"unit": unit, "machine": environment()[kind]}, seals.recall(path)
    known = {name: dict(kept.get(name, {})) for name in ("sizes", "speeds", "runs")}
    if not head.items() <= kept.items():  # seconds of another machine
        known["runs"].clear()
    where = {"device": device, "machine": head["machine"], "torch": torch.__version__}
    unknown: dict[str, list[str]] = {}
    last = time.monotonic()
    try:
        for done, request in enumerate(asked):
            if time.monotonic() > last + TELL_EVERY:
                print(f"estimating: {done} of {len(asked)} runs", flush=True)
                last = time.monotonic()
            known["runs"].pop(request.name, None)
            try:
                found = _estimate(request, known, where, raw)
            except (DataError, DivergedError, _UnfitError) as error:
                unknown.setdefault(str(error), []).append(request.name)
            except ConfigError as error:
                raise ConfigError(f"{request.name}: {error}") from None
            else:
                known["runs"][request.name] = {stage: x._asdict() for stage, x in found.items()}
    finally:
        seals.write_json(path, {**head, **known})
    for error, (first, *others) in unknown.items():
        more = f" and {len(others)} more" if others else ""
        print(f"time unknown: {first}{more}: {error}", flush=True)


class _UnfitError(ConfigError):
    """A run whose model cannot be tried; other errors of a configuration fail the plan."""


def _estimate(request: Request, known: dict, where: dict, raw: str) -> dict[str, Estimate]:
    """The costs of a run; adds what it measures to `known`."""
    spec, data = request.spec, request.data
    cut = digest(request.manifest) if request.manifest.exists() else None
    own = downloads.state(data["dataset"], data["params"].get("source"), raw)
    about = [data, cut, own, DataSize._fields]
    size = DataSize(*_find(known["sizes"], about, lambda: size_of(data, request.manifest, raw)))
    facts = {
        **{name: getattr(spec, name) for name in OF_MODEL},
        **{name: getattr(size, name) for name in ("shape", "dtype", "num_classes")},
        "batch_size": spec.local["batch_size"],
        "round": round_of(spec, size),
        "executor": request.executor,
        **where,
        "fields": Speed._fields,
    }
    how = {"device": where["device"], "executor": request.executor}
    speed = Speed(*_find(known["speeds"], facts, lambda: speed_of(spec, size, **how)))
    found = estimate(spec, size, speed)
    for stage, file in request.finished.items():
        if took := read_cost(file, how["device"]):
            found[stage] = found[stage]._replace(seconds=took[0], mb=took[1])
    return found


def read_cost(result: Path, device: str) -> tuple[float, float] | None:
    """Seconds and megabytes that a finished job recorded; None if it ran on another device."""
    with open_result(result) as file:
        made = json.loads(file.attrs["provenance"])
    about = made["spent"][WALL if device == "cuda" else CPU], made["spent"][MEMORY] / 1e6
    return about if made["device"] == device else None


def _find(known: dict, facts: object, measure: Callable[[], Sequence]) -> Sequence:
    """What `measure` found for these facts, now or before."""
    if (key := seals.spec_digest(facts)[:16]) not in known:
        known[key] = list(measure())
    return known[key]


def size_of(data: dict, manifest: Path, raw: str) -> DataSize:
    """The size of a federation: as its manifest says, or as declared.

    Raises:
      ConfigError: for a federation that cannot be dealt.
      DataError: for own files that are missing or invalid.
    """
    found = sizes.sizes(data, raw)
    if cut := seals.recall(manifest):  # a damaged one is made again
        found = sizes.of_manifest(cut, found)
    seen = [n for n, group in zip(found.train, found.group, strict=True) if group == "seen"]
    scored = sum(found.val) + sum(found.test)
    number = int(np.prod(found.shape)) * np.dtype(found.dtype).itemsize
    label = int(np.prod(found.labels)) if found.labels else 8  # bytes; labels of texts are uint8
    return DataSize(
        *(getattr(found, name) for name in DataSize._fields[:6]),
        *(len(found.group), len(seen), sum(seen), scored),
        (sum(found.train) + scored) * (number + label),
    )


def round_of(spec: RunSpec, size: DataSize) -> tuple[int, int]:
    """(clients, examples of each) of the largest round that is timed, as powers of two."""
    clients = size.clients * spec.participation.get("rate", 1.0)
    examples = size.trained / max(size.clients, 1)
    most = MOST_CLIENTS, MOST_STEPS * spec.local["batch_size"]
    near = [2 ** round(np.log2(max(x, 2))) for x in (clients, examples)]
    return min(most[0], near[0]), max(2, min(most[1], near[1]))


def speed_of(spec: RunSpec, size: DataSize, *, device: str, executor: str) -> Speed:
    """FedAvg's speed with the model of a run.

    Raises:
      _UnfitError: for a model that cannot be tried on such examples.
    """
    shapes, largest = build.Shapes(tuple(size.shape), size.num_classes), round_of(spec, size)
    local = {"solver": "sgd", "lr": SLOW, "batch_size": spec.local["batch_size"]}
    plain = {"params": {}, "modules": {}, "participation": {}, "local": local, "weights": None}
    spec = replace(spec, method="fedavg", rounds=1, **plain)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        task = build.build_task(spec, shapes)  # says what is wrong with the model's arguments
        with torch.device("meta"):
            module = task.build()
        if (numbers := sum(weights.numel() for weights in module.parameters())) > LARGEST:
            return Speed(count_flops(module, size) / _rate_of_products(device), numbers)
        rounds = partial(_seconds, spec, size, device, executor)
        return Speed(_time_example(rounds, *largest, local["batch_size"]), numbers)
    except ConfigError as error:
        raise _UnfitError(str(error)) from None
    finally:
        torch.set_num_threads(before)


def _time_example(
    seconds: Callable[[int, int], float], clients: int, examples: int, batch: int
) -> float:
    """Seconds for an example, in the smallest round that takes long enough, or the largest."""
    some, each = 1, 2
    while True:
        took = seconds(some, each)
        enough = ENOUGH if each >= min(batch, examples) else PLENTY
        if took >= enough or (some, each) == (clients, examples):
            return took / (some * each)
        if each == examples:
            some = min(GROWTH * some, clients)
        each = min(GROWTH * each, examples)


def _seconds(
    spec: RunSpec, size: DataSize, device: str, executor: str, clients: int, each: int
) -> float:
    """Seconds of a round of FedAvg."""
    federation = make_up(size, ["seen"] * clients, {"train": [each] * clients})
    simulation = build.build_simulation(spec, federation, device=device)
    executes = choose(executor, [simulation.method.task], workers=1)
    simulation = replace(simulation, executor=executes)
    state, clock = simulation.init(), _clock_of(device)

    def once(number: int) -> float:
        nonlocal state
        begun = clock()
        state = simulation.method.round(state, simulation.everyone("seen", number))
        return clock() - begun

    # Modules are imported and steps recorded in the first round, or captured by the third.
    warm = 1 + 2 * executes.replays
    for number in range(warm):
        once(number)
    times = [once(warm)]
    while sum(times) < ENOUGH and len(times) < GROWTH:
        times.append(once(warm + len(times)))
    return min(times)


def _clock_of(device: str) -> Callable[[], float]:
    """A clock: CPU time of the process, as other processes may be busy, or a GPU's time."""
    if device != "cuda":
        return time.process_time

    def now() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return now


def count_flops(module: torch.nn.Module, size: DataSize) -> float:
    """Operations of a step with one example, without values."""
    whole = torch.int64 if size.tokens or size.labels else None
    x = torch.zeros(2, *size.shape, device="meta", dtype=whole)  # two, for batch normalisation
    key = torch.zeros((), device="meta", dtype=torch.int64)
    with Operations() as counting, ambient.dropout_key(key):
        module(x).sum().backward()
    return counting.flops / len(x)


def _rate_of_products(device: str) -> float:
    """Operations per second in a product of matrices; not of zeros, which take less power."""
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((WIDE, WIDE), np.float32))
    x, clock, times = x.to(device), _clock_of(device), []
    for _ in range(GROWTH):
        begun = clock()
        x @ x
        times.append(clock() - begun)
    return 2 * WIDE**3 / min(times)
