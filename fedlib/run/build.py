"""Builds a run from its specification: its models, its method, its course.

Sizes that follow from the data, `in_features` and `num_classes`, may be left out of a declaration;
models that do not fit the data are refused.
"""

import copy
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from fedlib import draws, methods, models, seals, tree
from fedlib.engine import solvers
from fedlib.engine.ambient import dropout_key
from fedlib.engine.choice import choose
from fedlib.engine.device import DeviceData
from fedlib.engine.task import JointTask, Params, Task
from fedlib.errors import ConfigError, DataError, brief, quote
from fedlib.federation import Federation
from fedlib.fields import is_ours
from fedlib.files import digest
from fedlib.methods.base import Method
from fedlib.run import contract
from fedlib.run.simulate import Course, Simulation
from fedlib.run_spec import Architecture, RunSpec

# Errors of models, methods and PyTorch about invalid arguments.
SENSELESS = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
SIZES = ("in_features", "num_classes")
Weights = dict[str, Path]  # files of pretrained weights, by their name in declarations


class Shapes(NamedTuple):
    """The sizes that a model needs to know of its data.

    Attributes:
      inputs: shape of an input.
      num_classes: L.
    """

    inputs: tuple[int, ...] = (1,)
    num_classes: int = 2

    @classmethod
    def of(cls, federation: Federation) -> Self:
        """Those of a federation."""
        return cls(tuple(federation.x.shape[1:]), federation.num_classes)

    def complete(self, build: Callable, params: Mapping, sizes: Sequence[str]) -> dict[str, Any]:
        """Arguments of a model's `build`, with those of `sizes` that it takes and `params` lack."""
        known = {"in_features": math.prod(self.inputs), "num_classes": self.num_classes}
        takes = inspect.signature(build).parameters
        return {**{name: known[name] for name in sizes if name in takes}, **params}


UNKNOWN = Shapes()  # stand-in before the data exist


def build_simulation(
    spec: RunSpec,
    federation: Federation,
    *,
    device: str = "cpu",
    executor: str = "auto",
    weights: Sequence[Path] | None = (),
) -> Simulation:
    """The run of a specification, ready to start on `federation`.

    Args:
      weights: receipts of the pretrained weights of the run's model and modules; None to start
        from random ones.

    Raises:
      ConfigError: if an entry of `spec` or the executor is unknown or invalid, or does not fit the
        federation.
      DataError: if there is no client to train, or a file of weights is missing or changed.
    """
    if len(federation.ids("seen")) == 0:
        raise DataError("the federation has no seen clients: nobody to train")
    files = None if weights is None else weight_files(spec, weights)
    shapes = Shapes.of(federation)
    task = build_task(spec, shapes, device, files)
    method = build_method(spec, task, shapes, files)
    for each in tasks_of(method):
        _check_tokens(each, federation)
    _refuse_misfit(spec, method, federation)
    refuse_gate(method, federation)
    course = build_course(spec)
    try:
        data = DeviceData(federation, task.dtype, task.device)
        return Simulation(method, data, course, choose(executor, tasks_of(method)))
    except (TypeError, ValueError) as error:
        raise ConfigError(brief(error)) from error


def build_task(
    spec: RunSpec,
    shapes: Shapes = UNKNOWN,
    device: str = "cpu",
    weights: Weights | None = None,
    make: Callable[..., Task] = Task,
) -> Task:
    """The task of a run's model, on `device`.

    Args:
      shapes: of the data.
      weights: files of the run's pretrained weights, see `weight_files`; None to load none.
      make: makes a task of its fields.

    Raises:
      ConfigError: for an unknown model or argument, or weights that the model cannot use.
    """
    make = partial(make, precision=spec.precision, device=torch.device(device))
    return _task("model", spec.architecture, shapes, SIZES, weights, make, spec.class_weights)


def build_method(
    spec: RunSpec,
    task: Task,
    shapes: Shapes = UNKNOWN,
    weights: Weights | None = None,
    make: Callable[..., Task] = Task,
) -> Method:
    """The method of a run; its further architectures are on the device of `task`.

    Lists of architectures, of which a client has one, and classifiers get both sizes that they
    omit. Others get only `in_features`, because the classes of a gate are experts.

    Raises:
      ConfigError: for an unknown or invalid method, solver, model or argument.
    """
    make = partial(make, dtype=task.dtype, device=task.device, precision=task.precision)

    def module(where: str, one: Architecture, *sizes: str) -> Task:
        return _task(f"module {where}:", one, shapes, sizes, weights, make)

    try:
        kind = methods.load(spec.method)
        modules = {
            name: module(name, one, *(SIZES if name in kind.classifiers else ("in_features",)))
            if isinstance(one, Architecture)
            else tuple(module(f"{name}[{i}]", each, *SIZES) for i, each in enumerate(one))
            for name, one in spec.further.items()
        }
        known = {field.name for field in fields(kind)} - {"task", "local"}
        for what, given in (("hyper-parameters", spec.params), ("modules", modules)):
            if unknown := sorted(given.keys() - known):
                raise ValueError(f"unknown {what} {unknown}; it takes {sorted(known)}")
        local = solvers.from_spec(spec.local)
        return construct(kind, task=task, local=local, **modules, **spec.params)
    except SENSELESS as error:
        raise ConfigError(f"method {spec.method}: {brief(error)}") from error


def construct(kind: type[Method], /, **own: Any) -> Method:
    """A method of a class, with its `own` fields; raises an error if it breaks its contract.

    The task of a user's method knows the buffers of all modules: `fit` trains none of them. Methods
    of fedlib say it themselves, where they train several modules.
    """
    contract.check_fields(kind)
    method = kind(**own)
    others = tuple(x for x in tasks_of(method) if x is not method.task and x.statistics)
    if others and not is_ours(type(method)):
        method = replace(method, task=method.task.extend(JointTask, others=others))
    contract.check(method)
    return method


def build_course(spec: RunSpec) -> Course:
    """The course of a run: number of rounds, participation and evaluations.

    Raises:
      ConfigError: for an unknown or invalid argument.
    """
    own = {"rounds": spec.rounds, "seed": spec.seed, "evaluate_every": spec.evaluate_every}
    try:
        return Course(**own, **spec.participation)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"course: {brief(error)}") from error


def _task(
    what: str,
    architecture: Architecture,
    shapes: Shapes,
    sizes: Sequence[str],
    weights: Weights | None,
    make: Callable[..., Task],
    factors: Sequence[float] | None = None,
) -> Task:
    """The task of an architecture, called `what` in errors.

    Args:
      sizes: names of the arguments that may be left out.
      factors: class weights.
    """
    try:
        model = models.load(architecture.model)
        params = shapes.complete(model.build, architecture.params, sizes)
        return make(
            partial(model.build, **params),
            pretrained=_load_weights(model, architecture.weights, weights),
            class_weights=class_weights(factors, params.get("num_classes", 0)),
        )
    except SENSELESS as error:
        raise ConfigError(f"{what} {architecture.model}: {brief(error)}") from error


def class_weights(given: Any, num_classes: int) -> torch.Tensor | None:
    """Factors of the loss by label -> [L], or None; ConfigError unless there is one per class."""
    if given is None:
        return None
    try:
        weights = np.asarray(given, dtype=np.float64)
    except (RuntimeError, TypeError, ValueError):
        weights = np.empty(0)
    fits = weights.shape == (num_classes,) and weights.min() >= 0
    if not (fits and 0 < weights.sum() < np.inf):
        must = f"class_weights must be {num_classes} numbers of at least 0, one for each class"
        raise ConfigError(f"{must} and not all 0, got {quote(given)}")
    return torch.tensor(weights)


def _load_weights(model: ModuleType, name: str | None, weights: Weights | None) -> Params:
    """Parameters of `model` from the file of the weights `name`; {} for None, or no files."""
    if name is None:
        return {}
    if not hasattr(model, "pretrained"):
        raise ValueError(f"it cannot start from the weights {name!r}: it has no name map for any")
    return {} if weights is None else model.pretrained(weights[name])


def weight_files(spec: RunSpec, receipts: Sequence[Path]) -> Weights:
    """The files of a run's pretrained weights, by name; checks their checksums.

    Args:
      receipts: of their downloads, in any order.

    Raises:
      ConfigError: unless these are the receipts of the weights that the run declares.
      DataError: for a receipt whose file is missing or changed.
    """
    files = {seals.read_json(receipt)["dataset"]: receipt for receipt in receipts}
    if sorted(files) != sorted(spec.pretrained()):
        raise ConfigError(f"--weights must be of {[*spec.pretrained()]}, got {[*files]}")
    return {name: verify_file(receipt) for name, receipt in files.items()}


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


def _refuse_misfit(spec: RunSpec, method: Method, federation: Federation) -> None:
    """Raise ConfigError, with the right sizes, for models that do not fit the federation."""
    inputs, num_classes = Shapes.of(federation)
    given = spec.model_params.get("in_features", math.prod(inputs))
    name, shape = f"model {spec.model}", "x".join(map(str, inputs)) or "1"
    if given != math.prod(inputs):
        raise ConfigError(
            f"{name}: in_features must be {math.prod(inputs)}, as inputs are {shape} numbers, got "
            f"{given}; it may be left out"
        )
    if not _fits(method.task.num_outputs, num_classes):
        raise ConfigError(
            f"{name}: num_classes must be {num_classes}, as the data have so many, got "
            f"{method.task.num_outputs}; it may be left out"
        )
    examples = _two_examples(federation)
    read, ours = [(name, method.task, False)], is_ours(type(method))
    # Modules of a user's method may read anything, unless they classify.
    for field in (x for x in spec.further if ours or x in method.classifiers):
        for i, task in enumerate(tasks_in(value := getattr(method, field))):
            place = f"module {field}[{i}]" if isinstance(value, tuple) else f"module {field}"
            read.append((place, task, field in method.classifiers))
    try:  # with values, because for shapes alone PyTorch imports its compilers, which takes seconds
        with draws.aside(), torch.no_grad():
            for place, task, classifies in read:
                outputs = task.num_outputs
                # Drawing a heavy one takes seconds; if it fails, its first step would fail as well.
                if not task.is_heavy:
                    outputs = _refuse_unlike(task.build(), examples, place).shape[-1]
                if classifies and not _fits(outputs, num_classes):
                    raise ConfigError(f"{place} must give {num_classes} logits, got {outputs}")
    except ConfigError:
        raise
    except (IndexError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{place}: it cannot read {shape} numbers: {brief(error)}") from error


def _refuse_unlike(model: torch.nn.Module, examples: torch.Tensor, name: str) -> torch.Tensor:
    """The output of a model that draws no random numbers and is `head(body(x))`.

    Raises:
      ConfigError: for another model.
    """

    def output(run: Callable) -> torch.Tensor:
        with dropout_key(torch.tensor(0)):  # of a copy, because a model may learn as it runs
            return run(copy.deepcopy(model)).nan_to_num()

    for train in (True, False):
        model.train(train)
        with draws.refuse(name, "take Dropout of fedlib.models.layers.random"):
            whole = output(lambda own: own(examples))
        if not torch.equal(whole, output(lambda own: own.head(own.body(examples)))):
            raise ConfigError(
                f"{name} must give head(body(x)); move what follows, as a factor, into the head"
            )
    return whole


def refuse_gate(method: Method, federation: Federation) -> None:
    """Raises ConfigError for a gate of another size than the federation's inputs."""
    inputs, given = math.prod(Shapes.of(federation).inputs), getattr(method, "gate_features", None)
    if given not in (None, inputs):
        raise ConfigError(f"gate_features must be {inputs}, the numbers of an input, got {given}")


def _fits(outputs: int, num_classes: int) -> bool:
    """Whether there is an output for each class, or a single one for two of them."""
    return num_classes in (outputs, max(2, outputs))


def _two_examples(federation: Federation) -> torch.Tensor:
    """The first and the last input, as a model reads them."""
    kind = torch.float32 if federation.tokens is None else torch.int64
    return torch.from_numpy(federation.x[[0, -1]]).to(kind)


def tasks_of(method: Method) -> list[Task]:
    """The architectures in a method's fields: the model, and all further modules."""
    return [task for field in fields(method) for task in tasks_in(getattr(method, field.name))]


def tasks_in(value: Any) -> list[Task]:
    """The architectures in the value of a field: one, or several in a tuple."""
    values = value if isinstance(value, tuple) else (value,)
    return [x for x in values if isinstance(x, Task)]


def map_tasks(value: tree.T, change: Callable[[Task], Task]) -> tree.T:
    """A tree with each of its architectures changed."""
    return tree.map(lambda x: change(x) if isinstance(x, Task) else x, value)


def with_tasks(method: Method, change: Callable[[Task], Task]) -> Method:
    """The method with each of its architectures changed."""
    values = {x.name: map_tasks(getattr(method, x.name), change) for x in fields(method) if x.init}
    return replace(method, **values)


def verify_file(receipt: Path) -> Path:
    """The file of a download receipt; checks its checksum again.

    Raises:
      DataError: if the file is missing or changed.
    """
    [listed] = seals.read_json(receipt)["files"]
    file = receipt.parent / listed["path"]
    if not file.exists() or digest(file) != listed["sha256"]:
        raise DataError(f"{file} is missing or changed since {receipt} was written; delete both")
    return file
