"""Checks whether a run can be built, without its data and weights.

Models are built on PyTorch's meta device, which has shapes and no values. Runs with the same model
share its task.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache

import torch

from fedlib import models
from fedlib.engine.task import Task
from fedlib.errors import ConfigError
from fedlib.files import canonical_json
from fedlib.methods.base import Method
from fedlib.run import fitting, tune
from fedlib.run.build import assemble, build_course, build_modules, build_task
from fedlib.run.simulate import check_gossip
from fedlib.run.tuned import merged
from fedlib.run_spec import architectures

DEVICE = "meta"
MODEL = ("model", "model_params", "class_weights", "precision")  # entries of the task


def check(spec: dict) -> Method:
    """The method of a run specification (`fedlib.spec.Run.spec`), its models without values.

    The specification may have further entries: "groups", for which the method must have predictors;
    and "tuning", whose trials must all be possible.

    The job itself checks that shards and pretrained weights fit the model. Here, sizes that depend
    on the data have stand-ins.

    Raises:
      ConfigError, ValueError: for an unknown or invalid method, model, solver, course or argument.
    """
    with torch.device(DEVICE):
        for values in tune.settings(spec) if "tuning" in spec else ():
            _check(merged(spec, values))
        return _check(spec)


def _check(spec: dict) -> Method:
    known = fitting.UNKNOWN
    if spec["class_weights"] is not None:
        known = known._replace(num_classes=len(spec["class_weights"]))
    spec = fitting.completed(spec, known)
    further = architectures(spec["modules"])
    _check_weights(spec["model"], spec["weights"])
    for module in further.values():
        _check_weights(module["model"], module.get("weights"))
    own = canonical_json({name: spec[name] for name in MODEL})
    task = _task(own)
    built = {where: _module(where, _bare(module), own) for where, module in further.items()}
    modules = {
        name: tuple(built[f"{name}[{i}]"] for i in range(len(module)))
        if isinstance(module, list | tuple)
        else built[name]
        for name, module in spec["modules"].items()
    }
    method = assemble(spec, task, modules)
    _check_groups(spec["method"], method, spec.get("groups", ()))
    check_gossip(build_course(spec), method)
    return method


def _check_groups(name: str, method: Method, groups: Sequence[str]) -> None:
    """Raises ConfigError if the method has no predictor for a group on which it is tested."""
    for group in groups:
        if not method.protocols.get(group):
            raise ConfigError(
                f"method {name}: it is tested on the examples of the {group} here, for which its "
                f"`protocols` name no predictor; they have {', '.join(method.protocols)}"
            )


def _check_weights(model: str, weights: str | None) -> None:
    """Raises ConfigError for pretrained weights of a model that cannot load any."""
    if weights is not None and not hasattr(models.load(model), "pretrained"):
        raise ConfigError(f"model {model}: it cannot start from pretrained weights, got {weights}")


@cache
def _task(text: str) -> Task:
    """The task of a run, from the canonical JSON of its `MODEL`; TF32, of GPUs only, is ignored."""
    spec = json.loads(text)
    precision = "float32" if spec["precision"] == "tf32" else spec["precision"]
    return build_task({**spec, "weights": None, "precision": precision}, DEVICE)


@cache
def _module(where: str, text: str, own: str) -> Task:
    """A further architecture, from its canonical JSON, for a run whose `MODEL` is `own`."""
    return build_modules({"modules": {where: json.loads(text)}}, _task(own))[where]


def _bare(module: Mapping) -> str:
    """A module's canonical JSON without pretrained weights."""
    return canonical_json({name: value for name, value in module.items() if name != "weights"})
