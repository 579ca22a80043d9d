"""The executor that a run takes: the one that is asked for, that was measured, or of the rule.

With `executor: auto`, training and evaluation look their run up in a small JSON file in the user's
cache folder, and otherwise follow `fedlib.engine.choice.rule`. A long training that is not in it is
measured before its first round, and added (`fedlib.run.calibrate`).

What is guaranteed. Executors agree but for rounding, so which one runs decides a result's last
bits. Hence nothing is measured twice: training again gives the same bits as long as the file stays
the same. A run that was interrupted goes on with the executor that it began with (its checkpoint
says which), and provenance records what ran and why.
"""

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from fedlib import seals, tree
from fedlib.engine.batches import draw_batches
from fedlib.engine.choice import choose, rule
from fedlib.engine.device import DeviceData
from fedlib.engine.executors import Executor
from fedlib.engine.solvers import Solver
from fedlib.engine.task import Task
from fedlib.environment import cache_folder
from fedlib.files import canonical_json
from fedlib.methods.base import Method
from fedlib.run.simulate import Course, Simulation


def file() -> Path:
    """Where measurements are kept, for all checkouts of a user on a machine."""
    return cache_folder() / "executors.json"


def chosen(wanted: str, method: Method, data: DeviceData, course: Course) -> Executor:
    """The executor for a run: `wanted`, or for "auto" the calibrated one or that of the rule.

    Its notes say by what it was chosen: "force", "calibration" or "rule".

    Raises:
      ValueError: for an executor that does not exist.
    """
    by = "force"
    if wanted == "auto":
        measured = remembered()
        entry = measured.get(key(method, data, course)) if measured else None
        by = "calibration" if entry else "rule"
        wanted = entry["executor"] if entry else rule(method.task)
    executor = choose(wanted, method.task)
    executor.notes |= {"setting": executor.setting, "chosen_by": by}
    return executor


def settled(simulation: Simulation, begun: str | None, report: Callable[[str], None]) -> Simulation:
    """The simulation with the executor that it keeps to its end.

    Args:
      begun: what its checkpoint names, if there is one: another would go on with other last bits.
      report: gets a line on what is measured.
    """
    if begun is not None:
        return _with(simulation, begun, "checkpoint")
    if simulation.executor.notes["chosen_by"] != "rule":
        return simulation
    run = simulation.method, simulation.data, simulation.course
    try:
        entry = importlib.import_module("fedlib.run.calibrate").known(run, report)
    except OSError as error:
        report(f"executors are not measured: {error}")
        return simulation
    return _with(simulation, entry["executor"], "calibration") if entry else simulation


def _with(simulation: Simulation, setting: str, by: str) -> Simulation:
    workers = simulation.executor.notes["workers"]
    executor = choose(setting, simulation.method.task, workers)
    executor.notes |= {"setting": setting, "chosen_by": by}
    return replace(simulation, executor=executor)


def remembered() -> dict[str, dict]:
    """All measurements by key; none if there is no file.

    Raises:
      DataError: if the file is damaged; the message names it. Another executor would give other
        last bits.
    """
    return seals.read_json(file()) if file().exists() else {}


def key(method: Method, data: DeviceData, course: Course) -> str:
    """What runs have in common that take the same executor, in short -> digest in hexadecimal"""
    return hashlib.sha256(canonical_json(facts(method, data, course)).encode()).hexdigest()[:16]


def facts(method: Method, data: DeviceData, course: Course) -> dict:
    """What the speed of a run depends on: model, batches, cohort, machine and PyTorch.

    The number of threads is not among them: it must not change a result.
    """
    solver = method.local
    state = method.init(_num_kinds(method), 0)
    clients, sizes = cohort_sizes(data, course)
    steps = num_steps(sizes, solver)
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


def num_steps(sizes: np.ndarray, solver: Solver) -> list[int]:
    """Local steps in a round, of clients with `sizes` training examples."""
    return [len(draw_batches(int(n), solver, 0).steps) for n in sizes]


def _num_kinds(method: Method) -> int:
    """Architectures of which every client has one: so many clients have all of them in turn."""
    return max((len(x) for x in vars(method).values() if _are_tasks(x)), default=1)


def _are_tasks(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(x, Task) for x in value)


def device_name(device: torch.device) -> str:
    """The processor or the card."""
    from fedlib.environment import environment

    return environment()["gpu" if device.type == "cuda" else "cpu"]


def cohort_sizes(data: DeviceData, course: Course) -> tuple[int, np.ndarray]:
    """Clients in a round, and the training examples of all who may be in one."""
    sizes = data.federation.train.sizes[data.federation.ids("seen")]
    return max(1, int(course.rate * len(sizes))), sizes


def _size_class(number: int) -> int:
    """`number` rounded up to a power of two: runs of similar size share a measurement."""
    return 1 << max(number - 1, 0).bit_length()
