"""The executor of a run: the requested one, the one measured as fastest, or that of a rule.

With `executor: auto`, training and evaluation look up their run in a small JSON file in the user's
cache folder. Without an entry they follow `fedlib.engine.choice.rule`. A long training without an
entry is measured before its first round, and added (`fedlib.run.calibrate`).

Executors agree except for rounding, so the executor decides a result's last bits. Therefore nothing
is measured twice: training again gives the same bits as long as the file stays the same. An
interrupted run continues with its first executor, which is in its checkpoint. Provenance records
the executor and the reason for it.
"""

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch

from fedlib import seals, tree
from fedlib.engine.batches import cut
from fedlib.engine.choice import choose, rule
from fedlib.engine.device import DeviceData
from fedlib.engine.executors import Executor
from fedlib.engine.participation import cohort_size
from fedlib.engine.solvers import Solver
from fedlib.environment import cache_folder
from fedlib.files import canonical_json
from fedlib.methods.base import Method
from fedlib.run.fitting import tasks_of
from fedlib.run.simulate import Course, Simulation


def file() -> Path:
    """The file of measurements, for all checkouts of a user on a machine."""
    return cache_folder() / "executors.json"


def chosen(wanted: str, method: Method, data: DeviceData, course: Course) -> Executor:
    """The executor for a run: `wanted`, or for "auto" the measured one or that of the rule.

    Its notes have the reason for the choice: "force", "calibration" or "rule".

    Raises:
      ValueError: for an unknown executor.
    """
    by = "force"
    if wanted == "auto":
        measured = remembered()
        entry = measured.get(key(method, data, course)) if measured else None
        by = "calibration" if entry else "rule"
        wanted = entry["executor"] if entry else rule(tasks_of(method))
    executor = choose(wanted, method.task)
    executor.notes |= {"setting": executor.setting, "chosen_by": by}
    return executor


def settled(simulation: Simulation, begun: str | None, report: Callable[[str], None]) -> Simulation:
    """The simulation with its final executor.

    Args:
      begun: executor in the run's checkpoint, if there is one; another would change last bits.
      report: called with a line about a new measurement.
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
      DataError: if the file is damaged; the message names it. It is an error because another
        executor would change last bits.
    """
    return seals.read_json(file()) if file().exists() else {}


def key(method: Method, data: DeviceData, course: Course) -> str:
    """Hexadecimal digest of `facts`: runs with the same digest share an executor."""
    return hashlib.sha256(canonical_json(facts(method, data, course)).encode()).hexdigest()[:16]


def facts(method: Method, data: DeviceData, course: Course) -> dict:
    """Facts on which the speed of a run depends: model, batches, cohort, machine and PyTorch.

    The number of threads is left out, because it must not change a result.
    """
    solver = method.local
    state = method.init(len(tasks_of(method)), 0)  # a client of each architecture, or more
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
    """Local steps in a round of each client with `sizes` training examples."""
    return [len(cut(int(n), solver).steps) for n in sizes]


def device_name(device: torch.device) -> str:
    """Name of the processor or GPU."""
    from fedlib.environment import environment

    return environment()["gpu" if device.type == "cuda" else "cpu"]


def cohort_sizes(data: DeviceData, course: Course) -> tuple[int, np.ndarray]:
    """(clients in a round, training examples of each seen client)."""
    sizes = data.federation.train.sizes[data.federation.ids("seen")]
    return cohort_size(course.rate, len(sizes)), sizes


def _size_class(number: int) -> int:
    """`number` rounded up to a power of two: runs of similar size share a measurement."""
    return 1 << max(number - 1, 0).bit_length()
