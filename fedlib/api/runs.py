"""Runs in memory, which compute the same as `scripts/train.py`, and finished runs from files."""

import contextlib
import copy
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedlib import methods
from fedlib.api import agreement, following, process
from fedlib.api.callbacks import Callback
from fedlib.api.model import Model, builder, is_given
from fedlib.api.result import Result
from fedlib.engine.choice import choose
from fedlib.engine.device import DeviceData
from fedlib.engine.solvers import SGD, Solver
from fedlib.engine.task import Task
from fedlib.errors import ConfigError, DataError, brief, nearest, quote
from fedlib.federation import Federation
from fedlib.fields import convert, is_ours
from fedlib.files import digest
from fedlib.methods.base import Method
from fedlib.results import RunResult
from fedlib.run import build, contract, rehearsal
from fedlib.run.build import SENSELESS, build_simulation, tasks_of
from fedlib.run.checkpoint import load_tensors, restore
from fedlib.run.job import training_spec
from fedlib.run.simulate import Course, Simulation
from fedlib.run_spec import RunSpec

STARTS = ("drawn", "given")
A_RUN = "results/demo/runs/pfedmm/digits/fedem/seed1234"


@process.plain()
def simulate(
    federation: Federation,
    model: Model,
    method: str | type[Method] = "fedavg",
    *,
    local: Solver,
    rounds: int,
    seed: int = 0,
    rate: float = 1.0,
    evaluate_every: int = 1,
    start: str = "drawn",
    course: dict | None = None,
    class_weights: Any = None,
    device: str = "cpu",
    precision: str = "float32",
    executor: str = "auto",
    progress: Callable[[str], None] | None = print,
    callbacks: Iterable[Callback] = (),
    checkpoint: str | Path | None = None,
    **more: Any,
) -> Result:
    """Train a method on a federation.

    The same arguments give the same bits, and so does the same run of the workflow.

    Args:
      federation: the clients, see `fedlib.Federation` and `fedlib.partition`.
      model: a `torch.nn.Module` whose last layer is the head, or a function that returns one.
        Parameters that are frozen (`requires_grad_(False)`) stay, and are not sent. It may be on
        any device: its copies are trained on `device`.
      method: a class derived from `fedlib.methods.base.Method`, or the name of one of fedlib's.
      local: the clients' solver, such as `fedlib.SGD(lr=0.1)`.
      rounds: communication rounds.
      seed: of initial parameters, cohorts and shuffling.
      rate: fraction of the seen clients in a round, in (0, 1]. The server averages their models
        alone; with course={"aggregation": "damped"} the others count with the model that they had,
        so a step is that much smaller, as in pFedMM.
      evaluate_every: rounds between evaluations; round 0 and the last are always evaluated.
      start: "drawn" draws a module's parameters again from `seed`, but for frozen ones; "given"
        takes the module's own, as a function's always are. Of several experts, those after the
        first then have a new head, as in FedEM and pFedMM.
      course: further fields of `fedlib.run.simulate.Course`, such as {"aggregation": "gossip"}.
      class_weights: [L] factors of the training loss by label, or a dict or series of pandas with
        one for each class, such as 1 / labels.value_counts(); None for 1.
      device: "cpu", "cuda", "cuda:1", or "auto": a GPU if there is one.
      precision: of matrix products, see `fedlib.engine.task.Task`.
      executor: how clients are run, see `fedlib.engine.choice.choose`; "auto" goes by
        its `rule`.
      progress: called with a line now and then; None for no progress.
      callbacks: called with an `Evaluation` after each evaluation; the run ends there if one
        returns True, such as `fedlib.callbacks.EarlyStopping`. In a notebook Ctrl-C ends the run,
        too, and the result is of the rounds until then.
      checkpoint: a folder of this run's own; the same call goes on from there, with the same bits.
      more: hyper-parameters, which are the fields of the method, such as `num_experts=3`:
        `help("fedlib.methods.fedem")` has those of "fedem" with defaults, ranges and sources.
        Further architectures are modules, or functions that return one, drawn or given as `model`:
        `gate=nn.Linear(64, 3)`, or a list of several.

    Raises:
      ConfigError: for a model, method or setting that does not exist or does not fit the data, or a
        method whose functions return something else than they should.
      DataError: for a federation without a client that can train.
      DivergedError: as soon as a loss is not finite.
    """
    _check_federation(federation)
    _check_solver(local)
    report = _reporter(progress)
    known = {"rounds": rounds, "seed": seed, "evaluate_every": evaluate_every}
    run = _course({**known, "rate": rate}, {} if course is None else course)
    executor = convert("executor", executor, str)
    kind, start = _class(method, more, start)
    with process.threads.keep():
        with _config_errors():
            settings = {"device": _device(device), "precision": precision}
            first = _first_seed(start, model, seed)
            task = _task(model, federation, class_weights, settings, first)
            own = {"task": task, "local": local, **more}
            made = _build_method(kind, own, federation, settings, start == "given")
            data = DeviceData(federation, task.dtype, task.device)
            simulation = Simulation(made, data, run, choose(executor, tasks_of(made)))
        simulation = _try(simulation, report, first is not None)
        return Result(*following.run(simulation, callbacks, checkpoint, report))


check_fields = partial(contract.check_fields, taken=inspect.signature(simulate).parameters)


@process.plain()
def open_run(
    folder: str | Path,
    *,
    device: str = "cpu",
    executor: str = "auto",
    weights: Sequence[str | Path] = (),
) -> Result:
    """A finished run of the workflow, from its files.

    Args:
      folder: of the run, such as "results/demo/runs/pfedmm/digits/fedem/seed1234"; its shards are
        looked for in "results/demo/shards".
      device, executor: as for `simulate`.
      weights: receipts of the pretrained weights that the run started from, if any, such as
        "data/raw/mobilenet_v2_weights.json".

    Raises:
      ConfigError: if the code no longer has the run's method, model or a setting.
      DataError: for files that are missing or damaged, or if the shards have changed since.
    """
    folder = Path(folder).resolve()
    if not (folder / "history.h5").exists():
        raise DataError(f"{folder} must be the folder of a finished run, such as {A_RUN}")
    history = RunResult.load(folder / "history.h5")
    if "manifest_sha256" not in history.provenance:
        raise DataError(f"{folder} was written by Result.save; take fedlib.load")
    manifest = _manifest(folder, history.provenance["manifest_sha256"])
    federation = Federation.load(manifest.with_suffix(".h5"), manifest)
    with process.threads.keep():
        simulation = build_simulation(
            training_spec(RunSpec.from_json(history.spec), folder / "history.h5"),
            federation,
            device=str(_device(device)),
            executor=executor,
            weights=[*map(Path, weights)],
        )
        tensors = load_tensors(folder / "state.pt", history.provenance["state_sha256"])
        return Result(simulation, restore(simulation.init(), tensors), history)


def _manifest(folder: Path, sha256: str) -> Path:
    """The manifest of a run's shards, which has this digest; see `fedlib.workflow.layout`."""
    parents = [*folder.parents]
    if len(parents) < 6 or parents[3].name != "runs":
        raise DataError(
            f"{folder} must be at its place in a results folder, such as {A_RUN}: its shards are "
            "in results/demo/shards"
        )
    _, federation, paper, _, results, *_ = parents
    shards = results / "shards" / paper.name
    own, shared = shards / federation.name / f"{folder.name}.json", shards / federation.name
    for manifest in (own, shared.with_name(f"{shared.name}.json")):
        if manifest.exists() and digest(manifest) == sha256:
            return manifest
    raise DataError(f"{shared}.json is not what {folder} was trained on; cut the clients again")


def _class(
    method: str | type[Method], hyper_parameters: dict, start: str
) -> tuple[type[Method], str]:
    """The class of a method, and the start of its model.

    A method with a field `start`, such as Fed-MoE, gets `start` there: it is added to
    `hyper_parameters`, in place, and the start of the model is "drawn".

    Raises:
      ConfigError: unless it has these hyper-parameters, and all that it needs.
    """
    kind = methods.load(method) if isinstance(method, str) else method
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise ConfigError(f"method must be a name or a class of a method, got {method!r:.80}")
    takes = [x for x in fields(kind) if x.name not in ("task", "local")]
    known = {x.name for x in takes}
    for name in sorted((hyper_parameters.keys() - known) & {x.name for x in fields(SGD)}):
        raise ConfigError(f"{name} belongs to the solver: local=fedlib.SGD({name}=...)")
    check_fields(kind)
    name = method if isinstance(method, str) else kind.__name__
    # What `simulate` takes is not among them, but what is misspelt may be near.
    taken = {*inspect.signature(simulate).parameters} - {"more"}
    _check_names(name, hyper_parameters, known | taken)
    needed = [x.name for x in takes if x.init and x.default is x.default_factory is MISSING]
    if missing := [x for x in needed if x not in hyper_parameters]:
        see = f"; see help({kind.__module__!r})" if is_ours(kind) else ""
        raise ConfigError(f"{name} needs {', '.join(missing)}{see}")
    if start not in kind.choices.get("start", ()):
        return kind, start
    hyper_parameters["start"] = start  # of Fed-MoE
    return kind, "drawn"


def _check_names(owner: str, given: Mapping, known: set[str]) -> None:
    """Raises ConfigError for the first of the `given` names that is not known."""
    if unknown := sorted(given.keys() - known):
        raise ConfigError(f"{owner} has no {unknown[0]}; {nearest(unknown[0], sorted(known))}")


def _check_federation(given: Any) -> None:
    """Raises ConfigError if this is no federation, DataError if nobody in it trains."""
    if not isinstance(given, Federation):
        raise ConfigError(
            "the first argument must be a federation, such as fedlib.partition makes, got "
            f"{type(given).__name__}"
        )
    if not len(given.ids("seen")):
        raise DataError("the federation has no seen clients: nobody to train")


def _check_solver(local: Any) -> None:
    """Raises ConfigError if this is no solver, or has epochs and steps."""
    if not isinstance(local, Solver):
        kind = f"{type(local).__module__}.{type(local).__name__}"
        raise ConfigError(f"local must be a solver, such as fedlib.SGD(lr=0.1), got a {kind}")
    local.refuse_both()


def _device(name: str) -> torch.device:
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    name = ("cuda" if there else "cpu") if name == "auto" else str(name)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ConfigError(f"device must be one of auto, cpu, cuda, cuda:1, got {name!r}")
    if name != "cpu" and not there:
        raise ConfigError(f"device is {name}, and PyTorch can use no GPU here; use auto or cpu")
    if int(name.partition(":")[2] or 0) >= max(there, 1):
        raise ConfigError(f"device is {name}, and GPUs are numbered from 0 to {there - 1} here")
    return torch.device(name)


def _course(known: Mapping, more: Mapping) -> Course:
    """The course of a run; raises ConfigError for unknown names in `more`, or no mapping."""
    more = convert("course", more, Mapping)
    _check_names("course", more, {x.name for x in fields(Course)} - known.keys())
    return Course(**known, **more)


def _reporter(progress: Any) -> Callable[[str], None]:
    """The function that is called with lines; raises ConfigError for something else."""
    if progress is not None and not callable(progress):
        raise ConfigError(f"progress must be a function, such as print, or None, got {progress!r}")
    return progress or (lambda line: None)


def _try(simulation: Simulation, report: Callable[[str], None], given: bool) -> Simulation:
    """The simulation, whose model and, if it is a user's, method do what they should.

    Args:
      given: whether a line is to say that it starts from weights of the user's.
    """
    if out := simulation.federation.left_out:
        report(f"left out, for lack of training or test examples: {out} of the clients")
    if given:
        report("starts from the weights of the model that was given")
    simulation = agreement.try_models(simulation, report)
    kind = type(simulation.method)
    # Where the class has functions of its own; the one that runs may be inherited from fedlib.
    own = (inspect.unwrap(x) for x in vars(kind).values() if inspect.isfunction(x))
    file = None if is_ours(kind) else next((x.__code__.co_filename for x in own), "no file")
    if file or any(task.is_frozen_in_part for task in tasks_of(simulation.method)):
        with rehearsal.refuse(kind.__name__, file):
            rehearsal.check(simulation)
    return simulation


def _first_seed(start: str, model: Model, seed: int) -> int | None:
    """The seed whose model has the weights that were given; None if all are drawn."""
    if start not in STARTS:
        raise ConfigError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    return seed if start == "given" or is_given(model) else None


def _task(
    model: Model, data: Federation, class_weights: Any, settings: Mapping, given: int | None = None
) -> Task:
    """The task of a model that predicts the classes of a federation; `given` as of `builder`."""
    names = range(data.num_classes) if data.class_name is None else data.class_name.tolist()
    made = builder(model, _some_inputs(data), "model", _shape_of_logits(data), given)
    if hasattr(class_weights, "keys"):  # a series of pandas may be in the order of frequencies
        keys = {k if data.class_name is None else str(k): k for k in class_weights.keys()}
        if odd := sorted({*names} ^ keys.keys(), key=str):
            raise ConfigError(f"class_weights must be of all classes; {quote(odd)} differ")
        class_weights = [class_weights[keys[name]] for name in names]
    weights = build.class_weights(class_weights, len(names))
    return Task(made, class_weights=weights, **settings)


def _shape_of_logits(data: Federation) -> tuple[int, ...]:
    """The shape of a model's output for one input: [L] or, for sequences, [T, L]"""
    return *data.y.shape[1:], data.num_classes


def _some_inputs(data: Federation) -> Tensor:
    """Two inputs of a federation, scaled as for a model -> [2, ...]"""
    here = DeviceData(data, torch.float32, torch.device("cpu"))
    rows = here.rows["train"][[0, -1]]
    if data.tokens is not None:  # an embedding must have all
        rows[1] = int(data.x.max(1).argmax())
    return here.inputs(rows)


def _build_method(
    kind: type[Method], own: Mapping, data: Federation, settings: Mapping, given: bool
) -> Method:
    """The method, checked; modules among its `own` fields become tasks, drawn or as `given`."""
    inputs, further = _some_inputs(data), {}

    def tasks(value: Any, name: str, logits: tuple[int, ...] | None) -> Task | tuple[Task, ...]:
        """That of a module or of a function that returns one; several for a list of them."""
        if isinstance(value, list | tuple):
            return tuple(tasks(x, f"{name}[{i}]", logits) for i, x in enumerate(value))
        if given and isinstance(value, nn.Module):  # as a function that returns it always
            value = partial(copy.deepcopy, copy.deepcopy(value))
        return Task(builder(value, inputs, name, logits), **settings)

    for x in fields(kind):
        if x.name != "task" and re.search(r"\bTask\b", str(x.type)) and own.get(x.name) is not None:
            logits = _shape_of_logits(data) if x.name in kind.classifiers else None
            made = tasks(own[x.name], x.name, logits)
            one_of_several = str(x.type).startswith("tuple") and isinstance(made, Task)
            further[x.name] = (made,) if one_of_several else made
    with _config_errors(f"{kind.__name__}: "):
        made = build.construct(kind, **{**own, **further})
    build.refuse_gate(made, data)
    return made


@contextlib.contextmanager
def _config_errors(subject: str = "") -> Iterator[None]:
    """Errors of models and methods about invalid arguments become a ConfigError of one line."""
    try:
        yield
    except (ConfigError, DataError):
        raise
    except SENSELESS as error:
        raise ConfigError(f"{subject}{brief(error)}") from error
