"""A trial of a user's model before its run: does the engine compute what PyTorch does?

The engine calls a module with one client's weights after another's, batches clients and repeats
noted operations. That is right for modules whose whole state is in parameters and floating-point
buffers. So two clients take a few steps on a few examples, once as in the run and once as in
`fedlib.api.reference`, both without dropout. Then all parameters, buffers and outputs must agree.
If those of a fast executor do not, the run takes the loop.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from fedlib import draws, tree
from fedlib.api import reference
from fedlib.api.model import whole
from fedlib.api.reference import SIZES, Outcome, Plain
from fedlib.engine.choice import ONE_BY_ONE, choose
from fedlib.engine.cohort import Cohort
from fedlib.engine.device import DeviceData
from fedlib.engine.executors import Executor
from fedlib.engine.task import Batch, Params, Task, set_precision
from fedlib.engine.waves import Work
from fedlib.errors import ConfigError, brief
from fedlib.federation import Federation, Split
from fedlib.fields import is_ours
from fedlib.models.layers.random import Dropout
from fedlib.run.build import tasks_of, with_tasks
from fedlib.run.simulate import Simulation


def try_models(simulation: Simulation, report: Callable[[str], None]) -> Simulation:
    """The simulation, with the loop or with models that mix examples where that is needed.

    Args:
      report: called with a line if the executor is another than the one chosen.

    Raises:
      ConfigError: for a model that the engine cannot train or evaluate as PyTorch does.
    """
    # Clients' models of several kinds are scored on the same batches.
    if any(task.keeps_layout for task in tasks_of(simulation.method)):
        simulation = _of_all(simulation, keeps_layout=True)
    with draws.aside(0):
        # For models of fedlib itself its tests do the same.
        tasks = [x for x in tasks_of(simulation.method) if not is_ours(type(whole(x.build())))]
        own = simulation.method.task
        names = ["model" if task is own else f"module {i}" for i, task in enumerate(tasks)]
        tried = [_try(name, task, simulation) for name, task in zip(names, tasks, strict=True)]
    if any(mixing for mixing, _ in tried):
        simulation = _of_all(simulation, mixes_examples=True)
    if not (reasons := [reason for _, reason in tried if reason]):
        return simulation
    executor = simulation.executor
    report(f"clients run one by one (executor loop), not by {executor.name}: {reasons[0]}")
    executor = choose("loop", [simulation.method.task], executor.notes["workers"])
    executor.notes["chosen_by"] = "trial"
    return replace(simulation, executor=executor)


def _of_all(simulation: Simulation, **facts: bool) -> Simulation:
    """The simulation, where these facts hold for each architecture."""
    method = with_tasks(simulation.method, lambda task: replace(task, **facts))
    return replace(simulation, method=method)


class _Unlike(Exception):
    """The engine does something else than PyTorch, or PyTorch cannot train the model."""


def _try(name: str, task: Task, simulation: Simulation) -> tuple[bool, str]:
    """(whether the model mixes examples, why the run's executor cannot run it or "").

    Steps of the loop have the bits of PyTorch's, so numbers may be of any type. Batched ones differ
    by rounding, and small batches can amplify that to the size of a mistake, but not in float64.
    """
    types, problems = [torch.float32, torch.float64], {}
    for dtype in types if simulation.executor.setting in ONE_BY_ONE else types[::-1]:
        try:
            return _try_in(name, _without_dropout(task, dtype), simulation)
        except _Unlike as problem:
            problems[dtype] = problem
    # What PyTorch itself cannot train in one of the types says nothing about the engine.
    problem = min((problems[dtype] for dtype in types), key=lambda x: x.__cause__ is not None)
    raise ConfigError(f"{name}{problem}") from problem


def _try_in(name: str, task: Task, simulation: Simulation) -> tuple[bool, str]:
    """`_try` in one type of numbers; raises `_Unlike`."""
    set_precision(task)
    params = task.init(0)
    plains = [Plain.of(task, params) for _ in range(3)]
    reference.check_alike(name, plains, params)
    data = DeviceData(_few(simulation.federation), task.dtype, task.device)
    try:
        expected = reference.by_pytorch(name, task, data, params, plains)
    except ConfigError:
        raise
    except Exception as error:
        raise _Unlike(f" cannot be trained: {brief(error)}") from error
    work = Work(task, data, np.arange(len(SIZES)))
    mixing = reference.mixes(name, work, plains[0], expected.shared)
    task = replace(task, mixes_examples=True) if mixing else task
    reasons = []
    for way in dict.fromkeys((simulation.executor.setting, "loop")):
        found = _difference(way, task, data, params, expected, plains[0])
        if not found:
            return mixing, "".join(reasons)
        reasons.append(found)
    raise _Unlike(
        f": in the engine {reasons[-1]}; a forward may read parameters as attributes of their "
        "modules only (no other references to them, no torch.utils.checkpoint), and change "
        "floating-point buffers, in training"
    )


def _difference(way: str, task: Task, data: DeviceData, params: Params,
                expected: Outcome, plain: Plain) -> str:  # fmt: skip
    """How an executor differs from PyTorch, or ""."""
    pads = [getattr(layer, "padding_idx", None) for layer in plain.module.modules()]
    if way not in ONE_BY_ONE and any(pad is not None for pad in pads):
        return "the padding row of an embedding is trained by PyTorch's vmap"
    try:
        found = _by_engine(choose(way, [task], workers=1), task, data, params)
    except Exception as error:
        return f"it cannot be run: {brief(error)}"
    near = reference.NEAR[task.dtype]
    steps = {name: _largest(value - params[name]) for name, value in expected.params.items()}
    excess = {}
    for name, value in expected.params.items():
        floor = 64 * torch.finfo(value.dtype).eps * _largest(value)
        allowed = near * (steps[name] + max(steps.values()) / 10) + floor
        if not reference.close(found.params[name], value, allowed):
            excess[name] = _largest(found.params[name] - value) / allowed
    if excess:
        worst = max(excess, key=lambda name: excess[name])
        return f"{plain.name_of(worst)!r} is trained to other values than in PyTorch"
    for one, other in ((found.own, expected.own), (found.shared, expected.shared)):
        allowed = near * reference.size(other)
        if one.shape != other.shape or not reference.close(one, other, allowed):
            return "outputs in evaluation are others than in PyTorch"
    return ""


def _by_engine(executor: Executor, task: Task, data: DeviceData,
               params: Params) -> Outcome:  # fmt: skip
    ids = torch.arange(len(SIZES), device=task.device)
    cohort = Cohort(task, data, ids, 0, 0, executor)

    def loss(params: Params, batch: Batch) -> Tensor:
        return reference.loss_of(task.log_probs(params, batch), batch)

    trained, _ = cohort.fit(loss, cohort.broadcast(params), local=reference.SOLVER)
    first = tree.take(trained, 0)
    own, shared = (cohort.score(task.log_probs, x) for x in (trained, cohort.broadcast(first)))
    return Outcome(trained, own, shared)


def _few(federation: Federation) -> Federation:
    """Two clients, with the first examples of those who have most."""
    split = federation.train
    most = np.argsort(-split.sizes[seen := federation.ids("seen")], kind="stable")[:2]
    rows = np.concatenate([np.resize(split.of(c), n) for c, n in zip(
        np.resize(seen[most], 2), SIZES, strict=True)])  # fmt: skip
    none = Split.from_lists([[], []])
    own = np.split(np.arange(len(rows)), [SIZES[0]])
    several = {"side": None, "cluster": None, "truth": None, "client_name": None}
    splits = {"train": Split.from_lists(own), "val": none, "test": none}
    who = {"group": np.zeros(2, np.uint8), "client_id": np.arange(2)}
    return replace(
        federation, x=federation.x[rows], y=federation.y[rows], **several, **splits, **who
    )


def _without_dropout(task: Task, dtype: torch.dtype) -> Task:
    """The task without dropout, in `dtype`."""

    def build() -> nn.Module:
        made = task.build()
        for layer in made.modules():
            if isinstance(layer, Dropout | nn.modules.dropout._DropoutNd):
                layer.p = 0.0
        return made

    return Task(build, dtype, task.device)


def _largest(numbers: Tensor) -> float:
    return float(numbers.abs().nan_to_num(0).max())
