"""Checks whether a run can be built, without its data and weights.

Models are built on PyTorch's meta device, which has shapes and no values. The job itself checks
that shards and pretrained weights fit them; here sizes that follow from the data have stand-ins.
"""

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from fedlib.engine.task import Task
from fedlib.errors import ConfigError
from fedlib.files import canonical_json
from fedlib.methods.base import Method
from fedlib.run import tune
from fedlib.run.build import UNKNOWN, build_course, build_method, build_task
from fedlib.run.simulate import check_gossip
from fedlib.run_spec import RunSpec

DEVICE = "meta"
TASKS: dict[str, Task] = {}


def check(spec: RunSpec, groups: Collection[str] = ()) -> Method:
    """The method of a run, its models without values; all trials of a tuning must be possible.

    Args:
      groups: for which the method must have predictors.

    Raises:
      ConfigError, ValueError: for an unknown or invalid method, model, solver, course or argument.
    """
    with torch.device(DEVICE):
        for values in tune.settings(spec) if spec.tuning else ():
            _build(spec.set(values))
        method = _build(spec)
    ways = [*method.protocols.get("seen", ()), *method.final_protocols.get("seen", ())]
    if spec.tuning and spec.search.protocol not in ways:
        must = f"method {spec.method}: tuning.protocol must be one of {', '.join(ways)}"
        raise ConfigError(f"{must}, got {spec.search.protocol!r}")
    for group in groups:
        if not method.protocols.get(group):
            raise ConfigError(
                f"method {spec.method}: it is tested on the examples of the {group} here, for "
                f"which its `protocols` name no predictor; they have {', '.join(method.protocols)}"
            )
    return method


def _build(spec: RunSpec) -> Method:
    """The method of a run; TF32, of GPUs only, is ignored."""
    precision = "float32" if spec.precision == "tf32" else spec.precision
    classes = UNKNOWN.num_classes if spec.class_weights is None else len(spec.class_weights)
    shapes = UNKNOWN._replace(num_classes=classes)
    task = build_task(replace(spec, precision=precision), shapes, DEVICE, make=_share_task)
    method = build_method(spec, task, shapes, make=_share_task)
    check_gossip(build_course(spec), method)
    return method


def _share_task(build: partial, **fields: Any) -> Task:
    """A task without values, which runs with the same model share."""
    own = [build.func.__module__, build.keywords, fields["precision"]]
    key = canonical_json([*own, fields["class_weights"] is None])
    if key not in TASKS:
        TASKS[key] = Task(build, **fields)
    return TASKS[key]
