"""Which executor is fastest for a run on this machine: measured when asked, remembered in a file.

`python scripts/calibrate.py` measures the runs of a configuration and writes what it found to a
small JSON file in the user's cache folder. Training and evaluation with `executor: auto` look
their run up there, and otherwise follow `fedlib.engine.choice.rule`.

What is guaranteed. Executors agree but for rounding, so which one runs decides a result's last
bits. Hence `auto` never measures anything itself: it is a function of the run, the machine and the
calibration file, and training again gives the same bits as long as that file stays the same.
Noise cannot make it flip from one run to the next. A measurement replaces the rule's executor only
where another is `MARGIN` times as fast, and is taken with one thread, so that more workers, too,
give the same bits as one. A run that was interrupted goes on with the executor that it began with
(its checkpoint says which), and provenance records what ran and why.
"""

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from fedlib import tree
from fedlib.engine.batches import client_plan
from fedlib.engine.choice import choose, rule
from fedlib.engine.device import DeviceData
from fedlib.engine.executors import Executor
from fedlib.engine.task import Task
from fedlib.files import canonical_json, read_json, write_text
from fedlib.methods.base import Method
from fedlib.run.simulate import Protocol, Simulation

MARGIN = 1.3  # times as fast as the rule's executor, to be taken instead
SECONDS = 0.15  # what the measured rounds of one executor may take, beyond the first
HOPELESS = 4  # times the first round of another executor, after which one is not measured further
REPEATS = 5  # rounds measured, if they are as short as that
CLIENTS = 4  # measured at least, so that there is something to batch
STEPS = 2  # local steps of each client at most: the first costs more than those after it
CANDIDATES = {"cpu": ("loop", "batched", "batched:32"), "cuda": ("loop", "batched", "graphs")}


def file() -> Path:
    """Where measurements are kept, for all checkouts of a user on a machine."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "fedlib" / "executors.json"


def chosen(wanted: str, method: Method, data: DeviceData, protocol: Protocol) -> Executor:
    """The executor for a run: `wanted`, or for "auto" the calibrated one or that of the rule.

    Its notes say by what it was chosen: "force", "calibration" or "rule".

    Raises:
      ValueError: for an executor that does not exist.
    """
    by = "force"
    if wanted == "auto":
        measured = remembered()
        entry = measured.get(key(method, data, protocol)) if measured else None
        by = "calibration" if entry else "rule"
        wanted = entry["executor"] if entry else rule(method.task)
    executor = choose(wanted, method.task)
    executor.notes |= {"setting": executor.setting, "chosen_by": by}
    return executor


def as_begun(simulation: Simulation, setting: str | None) -> Simulation:
    """The simulation with the executor that its checkpoint names, if there is one.

    Another would go on with other last bits.
    """
    if setting is None:
        return simulation
    executor = choose(setting, simulation.method.task)
    executor.notes |= {"setting": setting, "chosen_by": "checkpoint"}
    return replace(simulation, executor=executor)


def remembered() -> dict[str, dict]:
    """All measurements by key; none if there is no file.

    Raises:
      DataError: if the file is not JSON; the message names it.
    """
    return read_json(file()) if file().exists() else {}


def remember(name: str, entry: dict) -> None:
    """Add a measurement to the file, or replace it there."""
    file().parent.mkdir(parents=True, exist_ok=True)
    write_text(file(), canonical_json(remembered() | {name: entry}) + "\n")


def key(method: Method, data: DeviceData, protocol: Protocol) -> str:
    """What runs have in common that take the same executor, in short -> digest in hexadecimal"""
    return hashlib.sha256(canonical_json(facts(method, data, protocol)).encode()).hexdigest()[:16]


def facts(method: Method, data: DeviceData, protocol: Protocol) -> dict:
    """What the speed of a run depends on: model, batches, cohort, machine and PyTorch.

    The number of threads is not among them: it must not change a result.
    """
    solver = method.local
    state = method.init(_num_kinds(method), 0)
    clients, sizes = _cohort(data, protocol)
    steps = [len(client_plan(int(n), solver, 0).steps) for n in sizes]
    return {
        "method": type(method).__name__,
        "shapes": [[list(x.shape), str(x.dtype)] for x in tree.leaves(state)],
        "inputs": list(data.x.shape[1:]),
        "precision": method.task.precision,
        "batch_size": solver.batch_size,
        "clients": _size_class(clients),
        "steps": [_size_class(int(median(steps))), _size_class(max(steps))],
        "device": device_name(data.device),
        "torch": torch.__version__,
    }


def _num_kinds(method: Method) -> int:
    """Architectures of which every client has one: so many clients have all of them in turn."""
    return max((len(x) for x in vars(method).values() if _are_tasks(x)), default=1)


def _are_tasks(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(x, Task) for x in value)


def device_name(device: torch.device) -> str:
    """The processor or the card."""
    from fedlib.environment import environment

    return environment()["gpu" if device.type == "cuda" else "cpu"]


def measure(method: Method, data: DeviceData, protocol: Protocol) -> dict:
    """Time the executors on shortened rounds of a run -> {"executor": ..., "seconds": {...}}

    Real clients and batches, in a cohort and with epochs as small as the time demands; nothing
    that a run draws or remembers is touched. A second or so for light models.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        short = _shortened(method)
        clients = _affordable(short, data, protocol)
        candidates = [c for c in CANDIDATES[data.device.type] if _block(c) < len(clients)]
        rounds = {name: _rounds(name, short, data, protocol, clients) for name in candidates}
        times = {name: [_timed(run, data.device)] for name, run in rounds.items()}
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
    return {"executor": decide(seconds, rule(method.task)), "seconds": seconds}


def decide(seconds: dict[str, float], prior: str) -> str:
    """The fastest executor, if it is `MARGIN` times as fast as `prior`; else `prior`."""
    best = min(seconds, key=seconds.__getitem__)
    return best if seconds[prior] > MARGIN * seconds[best] else prior


def _block(candidate: str) -> int:
    """Clients in a block, if the setting says; a cohort without more than those is one block."""
    return int(candidate.partition(":")[2] or 0)


def _shortened(method: Method) -> Method:
    """The method with few local steps, unless its number of steps is part of what it is."""
    if method.local.steps is not None:
        return method
    try:
        return replace(method, local=replace(method.local, steps=STEPS))
    except ValueError:  # AFL does one step, L2SGD draws their number
        return method


def _affordable(method: Method, data: DeviceData, protocol: Protocol) -> np.ndarray:
    """Clients for a measured round: those of a cohort, as many as there is time for.

    The time is that of client by client, of which the others' are not many times more.
    """
    size, _ = _cohort(data, protocol)
    seen = data.federation.ids("seen")
    largest = seen[np.argsort(-data.federation.train.sizes[seen], kind="stable")]
    spread = np.sort(largest[np.linspace(0, len(largest) - 1, size).astype(int)])
    few = spread[:: max(1, -(-len(spread) // CLIENTS))][:CLIENTS]
    run = _rounds("loop", method, data, protocol, few)
    try:
        run()
    except ValueError:  # clustered and decentralised rounds are of everybody
        return spread
    per_client = _timed(run, data.device) / len(few)
    count = min(len(spread), max(len(few), int(SECONDS / max(per_client, 1e-9))))
    return spread[np.unique(np.linspace(0, len(spread) - 1, count).astype(int))]


def _rounds(
    name: str, method: Method, data: DeviceData, protocol: Protocol, clients: np.ndarray
) -> Callable[[], Any]:
    """A function that does the next round with `clients` in the executor called `name`."""
    simulation = Simulation(method, data, protocol, choose(name, method.task))
    state = simulation.init()

    def run() -> None:
        nonlocal state
        state = method.round(state, simulation.cohort(clients, 0))

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


def _cohort(data: DeviceData, protocol: Protocol) -> tuple[int, np.ndarray]:
    """Clients in a round, and the training examples of all who may be in one."""
    sizes = data.federation.train.sizes[data.federation.ids("seen")]
    return max(1, int(protocol.rate * len(sizes))), sizes


def _size_class(number: int) -> int:
    """`number` rounded up to a power of two: runs of similar size share a measurement."""
    return 1 << max(number - 1, 0).bit_length()
