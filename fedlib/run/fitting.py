"""Fits models to their data: fills in sizes that declarations omit, and refuses a misfit.

Declarations may omit `in_features` and `num_classes`, which are then those of the federation. A
pass of two zero inputs shows whether a model can read them.
"""

import inspect
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import NamedTuple

import torch

from fedlib import draws, models
from fedlib.engine.task import Task
from fedlib.errors import ConfigError
from fedlib.federation import Federation
from fedlib.methods.base import Method


class Shapes(NamedTuple):
    """The sizes that a model needs to know of its data.

    Attributes:
      inputs: shape of an input.
      num_classes: L.
    """

    inputs: tuple[int, ...]
    num_classes: int


UNKNOWN = Shapes((1,), 2)  # stand-in before the data exist


def of(federation: Federation) -> Shapes:
    """The shapes of a federation."""
    return Shapes(tuple(federation.x.shape[1:]), federation.num_classes)


def completed(spec: dict, shapes: Shapes) -> dict:
    """A run specification with the sizes that it omits.

    They are filled in for the model, and for lists of architectures that clients have in turn.
    Other modules get only `in_features`, because the classes of a gate are experts. Declared values
    and defaults stay.
    """

    def module(one: dict, *left: str) -> dict:
        given = isinstance(one.get("params"), Mapping) and "model" in one
        return (
            {**one, "params": _filled(one["model"], one["params"], shapes, left)} if given else one
        )

    both = "in_features", "num_classes"
    modules = {
        name: [module(one, *both) for one in further]
        if isinstance(further, list | tuple)
        else module(further, "in_features")
        for name, further in spec["modules"].items()
    }
    params = _filled(spec["model"], spec["model_params"], shapes, both)
    return {**spec, "model_params": params, "modules": modules}


def _filled(model: str, params: Mapping, shapes: Shapes, left: tuple[str, ...]) -> Mapping:
    """The arguments of a model, with those in `left` that it needs and does not have."""
    if model not in models.MODELS:  # building it raises the error
        return params
    known = {"in_features": math.prod(shapes.inputs), "num_classes": shapes.num_classes}
    takes = inspect.signature(models.load(model).build).parameters
    needed = [name for name in left if name in takes and takes[name].default is inspect._empty]
    return {**{name: known[name] for name in needed}, **params}


def refuse_misfit(spec: dict, task: Task, federation: Federation) -> None:
    """Raise ConfigError, with the right sizes, for a model that does not fit the federation."""
    inputs, num_classes = of(federation)
    given = spec["model_params"].get("in_features", math.prod(inputs))
    name, shape = f"model {spec['model']}", "x".join(map(str, inputs)) or "1"
    if given != math.prod(inputs):
        raise ConfigError(
            f"{name}: in_features must be {math.prod(inputs)}, as inputs are {shape} numbers, got "
            f"{given}; it may be left out"
        )
    outputs = task.num_outputs
    if outputs != num_classes and (outputs, num_classes) != (1, 2):
        raise ConfigError(
            f"{name}: num_classes must be {num_classes}, as the data have so many, got {outputs}; "
            "it may be left out"
        )
    if task.is_heavy:  # drawing such a model takes seconds, and its first step would fail as well
        return
    kind = torch.float32 if federation.tokens is None else torch.int64
    try:  # with values, because for shapes alone PyTorch imports its compilers, which takes seconds
        with draws.aside(), torch.no_grad():
            task.build().eval()(torch.zeros((2, *inputs), dtype=kind))
    except (IndexError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{name}: it cannot read inputs of {shape} numbers: {reason}") from error


def refuse_gate(method: Method, federation: Federation) -> None:
    """Raises ConfigError for a gate of another number of inputs than the federation's."""
    inputs, given = math.prod(of(federation).inputs), getattr(method, "gate_features", None)
    if given not in (None, inputs):
        raise ConfigError(f"gate_features must be {inputs}, the numbers of an input, got {given}")


def tasks_of(method: Method) -> list[Task]:
    """The architectures in a method's fields: the model, and all further modules."""
    values = [getattr(method, field.name) for field in fields(method)]
    return [x for v in values for x in (v if isinstance(v, tuple) else (v,)) if isinstance(x, Task)]
