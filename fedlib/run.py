"""From a run's declaration to something that runs: builds method, model and solver from JSON."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedlib import evaluate, local, methods, models, seals
from fedlib.calibrate import chosen
from fedlib.checkpoint import Checkpoints, flatten, load_tensors, restore, save_tensors
from fedlib.device import DeviceData
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Federation
from fedlib.files import digest
from fedlib.methods.base import Method
from fedlib.results import RunResult
from fedlib.simulate import Protocol, Simulation
from fedlib.task import Task, set_precision

Measure = Callable[[Simulation, Any, RunResult], dict[str, float]]  # of a state, as evaluated


def build_task(spec: dict, device: str = "cpu", weights: Path | None = None) -> Task:
    """The model of a run specification (`fedlib.spec.Run.spec`), on `device`.

    Args:
      weights: the receipt of the pretrained weights that the run asks for.

    Raises:
      ConfigError: for a model or argument that does not exist, or weights that are not given.
    """
    if (spec["weights"] is None) != (weights is None):
        raise ConfigError(f"the run asks for weights {spec['weights']!r}, --weights is {weights}")
    try:
        model = models.load(spec["model"])
        pretrained = model.pretrained(verified_file(weights)) if weights else {}
        return Task(
            lambda: model.build(**spec["model_params"]),
            device=torch.device(device),
            pretrained=pretrained,
            class_weights=_class_weights(spec),
            precision=spec["precision"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"model {spec['model']}: {_text(error)}") from error


def build_modules(spec: dict, task: Task) -> dict[str, Task | tuple[Task, ...]]:
    """The further architectures of a run specification, where `task` is and in its precision.

    Where a list is declared, of which every client has one, there is a tuple.

    Raises:
      ConfigError: for a model or argument that does not exist.
    """

    def build(where: str, module: dict) -> Task:
        try:
            if module.keys() != {"model", "params"}:
                raise ValueError(f"it has a model and params, got {sorted(module)}")
            make = partial(models.load(module["model"]).build, **module["params"])
            return Task(make, dtype=task.dtype, device=task.device, precision=task.precision)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"module {where}: {_text(error)}") from error

    return {
        name: tuple(build(f"{name}[{i}]", one) for i, one in enumerate(module))
        if isinstance(module, list | tuple)
        else build(name, module)
        for name, module in spec["modules"].items()
    }


def _class_weights(spec: dict) -> torch.Tensor | None:
    """Factors of the loss by label -> [L], or None; ValueError unless there is one per class."""
    weights, num_classes = spec["class_weights"], spec["model_params"]["num_classes"]
    if weights is None:
        return None
    if len(weights) != num_classes:
        raise ValueError(f"{len(weights)} class_weights for {num_classes} classes")
    return torch.tensor(weights, dtype=torch.float64)


def build_method(spec: dict, task: Task) -> Method:
    """The method of a run specification.

    Raises:
      ConfigError: for a method, solver or hyper-parameter that does not exist or makes no sense.
    """
    modules = build_modules(spec, task)
    try:
        method = methods.load(spec["method"])
        known = {field.name for field in fields(method)} - {"task", "local"}
        for what, given in (("hyper-parameters", spec["params"]), ("modules", modules)):
            unknown = sorted(given.keys() - known)
            if unknown:
                raise ValueError(f"unknown {what} {unknown}; it takes {sorted(known)}")
        solver = local.from_spec(spec["local"])
        return method(task=task, local=solver, **modules, **spec["params"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"method {spec['method']}: {_text(error)}") from error


def build_simulation(
    spec: dict,
    federation: Federation,
    *,
    device: str = "cpu",
    executor: str = "auto",
    weights: Path | None = None,
) -> Simulation:
    """Everything a run specification describes, ready to run on `federation`.

    Raises:
      ConfigError: for anything in `spec`, or an executor, that does not exist or makes no sense.
      DataError: if there is nobody to train.
    """
    if len(federation.ids("seen")) == 0:
        raise DataError("the federation has no seen clients: nobody to train")
    task = build_task(spec, device, weights)
    set_precision(task)
    method = build_method(spec, task)
    try:
        protocol = Protocol(
            rounds=spec["rounds"],
            seed=spec["seed"],
            evaluate_every=spec["evaluate_every"],
            **spec["participation"],
        )
        data = DeviceData(federation, task.dtype, task.device)
        return Simulation(method, data, protocol, chosen(executor, method, data, protocol))
    except (TypeError, ValueError) as error:
        raise ConfigError(_text(error)) from error


def train(
    simulation: Simulation,
    spec: dict,
    provenance: dict,
    *,
    state_file: Path,
    history_file: Path,
    checkpoints: Checkpoints,
    earlier: tuple[Path, Path] | None = None,
    **run_options,
) -> None:
    """Run, then write the state and, last, the history that vouches for it with its checksum.

    Args:
      earlier: state and history of a run of fewer rounds and otherwise the same, to go on from.

    Raises:
      DataError: if that is another run.
    """
    start = _end_of(simulation, spec, *earlier) if earlier else None
    state, result = simulation.run(checkpoints, start=start, **run_options)
    tensors = flatten(state)
    sha256 = save_tensors(state_file, tensors)
    diagnostics = evaluate.as_arrays(simulation.method.diagnostics(state))
    provenance = {**provenance, "state_sha256": sha256}
    replace(result, spec=spec, provenance=provenance, diagnostics=diagnostics).save(history_file)
    checkpoints.clear()


def _end_of(
    simulation: Simulation, spec: dict, state_file: Path, history_file: Path
) -> tuple[Any, RunResult]:
    """State and history of a finished run, of which `spec` is a longer one."""
    history = RunResult.load(history_file)
    rounds = history.spec.get("rounds", 0)
    if {**history.spec, "rounds": spec["rounds"]} != spec or rounds > spec["rounds"]:
        raise DataError(
            f"{history_file} is not of the same run with at most {spec['rounds']} rounds; give the "
            "one it goes on from, or none"
        )
    tensors = load_tensors(state_file, history.provenance["state_sha256"])
    return restore(simulation.init(), tensors), history


def evaluate_state(
    simulation: Simulation,
    spec: dict,
    provenance: dict,
    *,
    state_file: Path,
    history_file: Path,
    measure: Measure = lambda simulation, state, evaluation: {},
    report: Callable[[str], None] = lambda line: None,
) -> RunResult:
    """Scores of a trained state under the protocols, and on the splits, that are asked for.

    Args:
      spec: the run's specification, and "views", which are asked for; see `fedlib.evaluate.final`.
      measure: what else is measured on the state, by its name among the diagnostics.
      report: gets a line of progress now and then.

    Raises:
      DataError: if the state is damaged, or was not trained from `spec`.
    """
    history = RunResult.load(history_file)
    if history.spec != {name: value for name, value in spec.items() if name != "views"}:
        raise DataError(
            f"{history_file} was written for another run specification; train again, "
            "or evaluate with the specification it was trained with"
        )
    tensors = load_tensors(state_file, history.provenance["state_sha256"])
    state = restore(simulation.init(), tensors)
    rounds = simulation.protocol.rounds
    result = evaluate.final(
        simulation.method,
        state,
        lambda group: simulation.everyone(group, rounds),
        report,
        spec["views"],
    )
    numbers = measure(simulation, state, result)
    measured = {name: np.array([number]) for name, number in numbers.items()}
    diagnostics = result.diagnostics | measured
    return replace(result, spec=spec, provenance=provenance, diagnostics=diagnostics)


def verified_file(receipt: Path) -> Path:
    """The one file that a download receipt vouches for, its checksum checked again.

    Raises:
      DataError: if the receipt does not name exactly one file, or the file changed since.
    """
    files = seals.read_json(receipt)["files"]
    if len(files) != 1:
        raise DataError(f"{receipt} names {len(files)} files, expected the one weight file")
    file = receipt.parent / files[0]["path"]
    if not file.exists() or digest(file) != files[0]["sha256"]:
        raise DataError(f"{file} is missing or changed since {receipt} was written; delete both")
    return file


def _text(error: Exception) -> str:
    return str(error.args[0]) if error.args else str(error)
