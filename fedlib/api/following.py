"""A run in memory, from its first round to its last: callbacks, checkpoints and Ctrl-C."""

import contextlib
import inspect
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import fedlib
from fedlib import draws, seals
from fedlib.api.callbacks import Callback, Evaluation
from fedlib.api.model import whole
from fedlib.api.reference import attributes
from fedlib.api.result import shares
from fedlib.engine.fingerprint import LIBRARIES, PLAIN, names_in
from fedlib.errors import ConfigError
from fedlib.federation import array_digest
from fedlib.results import RunResult
from fedlib.run import scoring
from fedlib.run.build import tasks_in, tasks_of
from fedlib.run.checkpoint import Checkpoints, flatten
from fedlib.run.simulate import Record, Simulation


def run(
    simulation: Simulation,
    callbacks: Iterable[Callback],
    checkpoint: str | Path | None,
    report: Callable[[str], None],
) -> tuple[Simulation, Any, RunResult]:
    """(the simulation, with the rounds that it has done, its state, everything recorded).

    Args:
      callbacks: called after each evaluation, also after those before a checkpoint.
      checkpoint: folder to resume from and to save to, or None.

    Raises:
      ConfigError: for something else than functions or a folder.
    """
    if not isinstance(callbacks, Iterable):
        raise ConfigError(f"callbacks must be a list of functions, got {callbacks!r:.80}")
    callbacks = [*callbacks]
    for odd in (x for x in callbacks if isinstance(x, type) or not callable(x)):
        made = f"; give {odd.__name__}()" if isinstance(odd, type) else ""
        raise ConfigError(f"callbacks must be functions of an Evaluation, got {odd!r:.80}{made}")
    saved = None if checkpoint is None else _checkpoints(checkpoint, simulation)
    told = 0  # evaluations that callbacks know

    def ends(done: int, record: Record) -> bool:
        nonlocal told
        answers = [
            callback(_evaluation(simulation, record, at))
            for at in range(told, len(record.round))
            for callback in callbacks
        ]
        told = len(record.round)
        return any(isinstance(x, bool | np.bool_) and x for x in answers) or pressed()

    with _ctrl_c() as pressed:
        state, history = simulation.run(saved, report, ends=ends)
    rounds = int(history.round[-1])
    if rounds < simulation.course.rounds:
        report(f"ended after {rounds} of {simulation.course.rounds} rounds")
    elif saved:
        saved.clear()
    return replace(simulation, course=replace(simulation.course, rounds=rounds)), state, history


def _evaluation(simulation: Simulation, record: Record, at: int) -> Evaluation:
    """The evaluation number `at`."""
    federation, number = simulation.federation, record.round[at]
    called, accuracies, pooled = federation.called, {}, {}
    for view, found in record.scores.items():
        scores = found[at]
        names = pd.Index([called[c] for c in federation.ids(view.group)], name="client")
        accuracies[view] = pd.Series(shares(scores), names, name="accuracy")
        pooled[view] = float(scores.correct.sum() / scores.count.sum())
    losses = [x for x in record.train_loss[:number] if x == x]  # NaN: a round without training
    return Evaluation(
        round=number,
        rounds=simulation.course.rounds,
        train_loss=losses[-1] if losses else None,
        bytes_down=record.counts["bytes_down"][at],
        bytes_up=record.counts["bytes_up"][at],
        accuracies=accuracies,
        pooled=pooled,
    )


def _checkpoints(folder: str | Path, simulation: Simulation) -> Checkpoints:
    """Checkpoints of this run, which those of a run with another model, data or setting are not."""
    if not isinstance(folder, str | Path) or (Path(folder).exists() and not Path(folder).is_dir()):
        raise ConfigError(f"checkpoint must be a folder, got {folder!r}")
    folder = Path(folder)
    stamp = _stamp(simulation)
    folder.mkdir(parents=True, exist_ok=True)
    saved = Checkpoints(folder, stamp)
    if saved.index.exists():
        entry = seals.read_json(saved.index)
        if odd := [name for name in stamp if entry["stamp"].get(name) != stamp[name]]:
            raise ConfigError(
                f"{folder} has the checkpoint of a run that differs in {' and '.join(odd)}; give "
                "each run a folder of its own"
            )
        if entry["round"] > simulation.course.rounds:
            raise ConfigError(
                f"{folder} has the checkpoint of round {entry['round']}: rounds must be at "
                f"least as many, got {simulation.course.rounds}; or give another folder"
            )
    return saved


def _stamp(simulation: Simulation) -> dict:
    """What tells a run from others.

    What a model computes cannot be read from it, so its losses before training stand for it, and
    for what it does in training alone the code and the numbers of its modules.
    """
    method, state = simulation.method, simulation.init()
    weights = method.task.class_weights
    tensors = {name: x.cpu().numpy() for name, x in flatten(state).items()}
    _, found = scoring.during_training(method, state, lambda name: simulation.everyone(name, 0))
    losses = {"/".join(view): scores.loss for view, scores in found.items()}
    plain = {x.name: getattr(method, x.name) for x in fields(method)}
    plain = {name: _text(x) for name, x in plain.items() if not tasks_in(x)}
    with draws.aside():
        models = [whole(task.build()) for task in tasks_of(method)]
    made = method, method.local, *(layer for model in models for layer in model.modules())
    kinds = dict.fromkeys(kind for one in made for kind in type(one).__mro__)
    parts = chain(*(vars(x).items() for x in kinds if x.__module__.split(".")[0] not in LIBRARIES))
    code = [_meaning(x) for x in parts if x[0][:2] != "__" or inspect.isfunction(x[1])]
    return {
        "federation": seals.spec_digest(simulation.federation.digests),
        "initial weights": {name: array_digest(x) for name, x in (tensors | losses).items()},
        "method": f"{type(method).__module__}.{type(method).__qualname__}",
        "code": seals.spec_digest(code),
        "model": [[repr(x), seals.spec_digest(repr(attributes(x)))] for x in models],
        "version of fedlib": fedlib.__version__,
        "class weights": weights is not None and array_digest(weights.cpu().numpy()),
        "settings": plain | {"course": repr(replace(simulation.course, rounds=0))},
        "executor": simulation.executor.setting,
        "device": str(simulation.data.device),
        "precision": method.task.precision,  # a model of zeros has the same losses in all
        "torch": torch.__version__,
    }


def _meaning(value: Any, depth: int = 3) -> Any:
    """What a user's function or value is, the same in each process, with what functions read."""
    value = getattr(value, "__func__", getattr(value, "fget", value))
    value = value.func if isinstance(value, cached_property) else value
    if isinstance(value, types.CodeType):
        return [value.co_code.hex(), value.co_names, _meaning(value.co_consts)]
    if isinstance(value, tuple | list | dict):
        items = value.items() if isinstance(value, dict) else value
        return [_meaning(x, depth) for x in items]
    if isinstance(value, frozenset | set):
        return sorted(map(repr, value))
    if isinstance(value, np.ndarray | Tensor):
        return array_digest(np.asarray(value))
    if isinstance(value, types.BuiltinFunctionType):  # its repr may have an address
        return value.__name__
    if isinstance(value, type) and depth and str(value.__module__).split(".")[0] not in LIBRARIES:
        own = (x for x in vars(value).items() if x[0][:2] != "__" or inspect.isfunction(x[1]))
        return [value.__qualname__, *(_meaning(x, depth - 1) for x in own)]
    if not isinstance(value, types.FunctionType):
        return repr(value) if isinstance(value, PLAIN) else type(value).__name__
    if not depth or str(value.__module__).partition(".")[0] in LIBRARIES:
        return value.__qualname__
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    read = [value.__globals__.get(name) for name in names_in(value.__code__)]
    more = [value.__defaults__, value.__kwdefaults__, cells, read]
    return [_meaning(value.__code__), _meaning(more, depth - 1)]


def _text(value: Any) -> str:
    """A setting in words, the same in each process."""
    if isinstance(value, np.ndarray | Tensor):
        return array_digest(np.asarray(value))
    return seals.spec_digest([_meaning(value)]) if inspect.isroutine(value) else repr(value)


@contextlib.contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed in a notebook or an interactive Python; twice interrupts.

    A script is interrupted as always, as it would go on with its next run otherwise.
    """
    here = threading.current_thread() is threading.main_thread() and hasattr(sys, "ps1")
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return
    pressed = []

    def note(number: int, frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
