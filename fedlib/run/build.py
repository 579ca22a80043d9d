"""Builds a run from its declaration: method, model and solver from JSON."""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from fedlib import methods, models, seals
from fedlib.engine import solvers
from fedlib.engine.choice import choose
from fedlib.engine.device import DeviceData
from fedlib.engine.task import Params, Task, set_precision
from fedlib.errors import ConfigError, DataError, shown
from fedlib.federation import Federation
from fedlib.files import digest
from fedlib.methods.base import Method
from fedlib.run import fitting, hooks
from fedlib.run.simulate import Course, Simulation
from fedlib.run_spec import run_weights

# Errors of models, methods and PyTorch about invalid arguments.
SENSELESS = (KeyError, OverflowError, RuntimeError, TypeError, ValueError)
Weights = dict[str, Path]  # files of pretrained weights, by their name in declarations


def build_task(spec: dict, device: str = "cpu", weights: Weights | None = None) -> Task:
    """The task of a run specification (`fedlib.spec.Run.spec`), on `device`.

    Args:
      weights: files of the run's pretrained weights, see `weight_files`.

    Raises:
      ConfigError: for an unknown model or argument, or weights that the model cannot use.
    """
    try:
        model = models.load(spec["model"])
        return Task(
            lambda: model.build(**spec["model_params"]),
            device=torch.device(device),
            pretrained=_pretrained(model, spec["weights"], weights),
            class_weights=class_weights(
                spec["class_weights"], spec["model_params"].get("num_classes", 0)
            ),
            precision=spec["precision"],
        )
    except SENSELESS as error:
        raise ConfigError(f"model {spec['model']}: {_text(error)}") from error


def build_modules(
    spec: dict, task: Task, weights: Weights | None = None
) -> dict[str, Task | tuple[Task, ...]]:
    """The further architectures of a run, on the device and in the precision of `task` -> by name.

    A declared list, of which every client has one architecture, becomes a tuple.

    Raises:
      ConfigError: for an unknown model or argument, or weights that a model cannot use.
    """

    def build(where: str, module: dict) -> Task:
        try:
            if not {"model", "params"} <= module.keys() <= {"model", "params", "weights"}:
                raise ValueError(f"it has a model, params, maybe weights, got {sorted(module)}")
            model = models.load(module["model"])
            return Task(
                partial(model.build, **module["params"]),
                dtype=task.dtype,
                device=task.device,
                pretrained=_pretrained(model, module.get("weights"), weights),
                precision=task.precision,
            )
        except SENSELESS as error:
            raise ConfigError(f"module {where}: {_text(error)}") from error

    return {
        name: tuple(build(f"{name}[{i}]", one) for i, one in enumerate(module))
        if isinstance(module, list | tuple)
        else build(name, module)
        for name, module in spec["modules"].items()
    }


def weight_files(spec: dict, receipts: Sequence[Path]) -> Weights:
    """The files of a run's pretrained weights, by name; checks their checksums.

    Args:
      receipts: of their downloads, in any order.

    Raises:
      ConfigError: unless these are the receipts of the weights that the run declares.
      DataError: for a receipt whose file is missing or changed.
    """
    files = {_receipt(receipt)[0]: receipt for receipt in receipts}
    asked = run_weights(spec)
    if {*asked} != {*files} or len(files) != len(receipts):
        given = ", ".join(map(str, receipts)) or "none"
        raise ConfigError(
            f"the run asks for weights {', '.join(map(repr, asked)) or 'of nothing'}, --weights "
            f"is {given}"
        )
    return {name: verified_file(receipt) for name, receipt in files.items()}


def _pretrained(model: ModuleType, name: str | None, weights: Weights | None) -> Params:
    """Parameters of `model` from the file of the weights `name`; {} for None."""
    if name is None:
        return {}
    if not hasattr(model, "pretrained"):
        raise ValueError(f"it cannot start from the weights {name!r}: it has no name map for any")
    if name not in (weights or {}):
        raise ValueError(f"the file of the weights {name!r} is not given")
    return model.pretrained(weights[name])


def class_weights(given: Any, num_classes: int) -> torch.Tensor | None:
    """Factors of the loss by label -> [L], or None; ConfigError unless there is one per class."""
    if given is None:
        return None
    must = f"class_weights must be {num_classes} numbers, one for each class"
    try:
        weights = np.asarray(given, dtype=np.float64)
    except (RuntimeError, TypeError, ValueError):
        raise ConfigError(f"{must}, got {shown(given)}") from None
    if weights.shape != (num_classes,):
        raise ConfigError(f"{must}, got {' x '.join(map(str, weights.shape)) or 'one'}")
    if not (weights.min() >= 0 and 0 < weights.sum() < np.inf):
        raise ConfigError(f"{must}, of at least 0 and not all 0, got {shown(given)}")
    return torch.tensor(weights)


def build_method(spec: dict, task: Task, weights: Weights | None = None) -> Method:
    """The method of a run specification; `weights` are as for `build_task`.

    Raises:
      ConfigError: for an unknown or invalid method, solver or hyper-parameter.
    """
    return assemble(spec, task, build_modules(spec, task, weights))


def assemble(spec: dict, task: Task, modules: dict[str, Task | tuple[Task, ...]]) -> Method:
    """As `build_method`, with architectures that are already built."""
    try:
        method = methods.load(spec["method"])
        known = {field.name for field in fields(method)} - {"task", "local"}
        for what, given in (("hyper-parameters", spec["params"]), ("modules", modules)):
            unknown = sorted(given.keys() - known)
            if unknown:
                raise ValueError(f"unknown {what} {unknown}; it takes {sorted(known)}")
        solver = solvers.from_spec(spec["local"])
        made = method(task=task, local=solver, **modules, **spec["params"])
        hooks.check(made)
        return made
    except SENSELESS as error:
        raise ConfigError(f"method {spec['method']}: {_text(error)}") from error


def build_simulation(
    spec: dict,
    federation: Federation,
    *,
    device: str = "cpu",
    executor: str = "auto",
    weights: Sequence[Path] = (),
) -> Simulation:
    """The run of a specification, ready to start on `federation`.

    Args:
      weights: receipts of the pretrained weights of the run's model and modules.

    Raises:
      ConfigError: if an entry of `spec` or the executor is unknown or invalid, or does not fit the
        federation.
      DataError: if there is no client to train, or a file of weights is missing or changed.
    """
    if len(federation.ids("seen")) == 0:
        raise DataError("the federation has no seen clients: nobody to train")
    files = weight_files(spec, weights)
    spec = fitting.completed(spec, fitting.of(federation))
    task = build_task(spec, device, files)
    set_precision(task)
    method = build_method(spec, task, files)
    for each in fitting.tasks_of(method):
        _check_tokens(each, federation)
    fitting.refuse_misfit(spec, task, federation)
    fitting.refuse_gate(method, federation)
    course = build_course(spec)
    try:
        data = DeviceData(federation, task.dtype, task.device)
        return Simulation(method, data, course, choose(executor, fitting.tasks_of(method)))
    except (TypeError, ValueError) as error:
        raise ConfigError(_text(error)) from error


def build_course(spec: dict) -> Course:
    """The course of a run: number of rounds, participation and evaluations.

    Raises:
      ConfigError: for an unknown or invalid argument.
    """
    names = ("rounds", "seed", "evaluate_every")
    try:
        return Course(**{name: spec[name] for name in names}, **spec["participation"])
    except (TypeError, ValueError) as error:
        raise ConfigError(f"course: {_text(error)}") from error


def _check_tokens(task: Task, federation: Federation) -> None:
    """Raises ConfigError if a model of texts cannot read the federation's inputs."""
    if task.tokens is None:
        return
    (vocabulary, pad), texts = task.tokens, federation.tokens
    if texts is None or texts.vocabulary > vocabulary or texts.pad != pad:
        found = f"{texts.vocabulary} tokens, padding {texts.pad}" if texts else "no tokens"
        raise ConfigError(
            f"the model reads texts of up to {vocabulary} tokens, padding {pad}; the federation's "
            f"inputs have {found}; set the model's vocabulary and pad"
        )


def verified_file(receipt: Path) -> Path:
    """The file of a download receipt; checks its checksum again.

    Raises:
      DataError: if the receipt does not name exactly one file, or the file is missing or changed.
    """
    _, files = _receipt(receipt)
    if len(files) != 1:
        raise DataError(f"{receipt} names {len(files)} files, expected the one weight file")
    [(path, sha256)] = files
    file = receipt.parent / path
    if not file.exists() or digest(file) != sha256:
        raise DataError(f"{file} is missing or changed since {receipt} was written; delete both")
    return file


def _receipt(path: Path) -> tuple[str, list[tuple[str, str]]]:
    """(name of the data set or weights, [(path, SHA-256) of each file]) of a download receipt."""
    receipt = seals.read_json(path)
    try:
        return str(receipt["dataset"]), [
            (str(x["path"]), str(x["sha256"])) for x in receipt["files"]
        ]
    except (KeyError, TypeError):
        raise DataError(f"{path} is no receipt of a download; delete it and run again") from None


def _text(error: Exception) -> str:
    """First line of an error's message; PyTorch adds lines about its own code."""
    lines = str(error.args[0] if error.args else error).splitlines()
    return lines[0][:1000] if lines else type(error).__name__
