"""The specification of a run as a record: its entries, their types, and the names in them.

Its JSON is what a plan gives to the jobs of a run, and what their results contain. This module is
not in `fedlib.spec`, because the code of a job must not include the other declarations of a paper.
"""

import ast
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, get_type_hints

from fedlib.errors import ConfigError
from fedlib.fields import as_form, convert

RUNG = 4  # at a rung, after 1 / RUNG of the rounds, 1 / RUNG of the trials go on
LOOK = re.compile(r"^    look = (.+)", re.MULTILINE)  # in the class of a method
EVALUATED = ("views", "predictions")  # further entries of the specification of an evaluation
TUNED, TUNING = "tuned", "tuning"  # further entries of a tuned run, and of its tuning


class Architecture(NamedTuple):
    """A registered model, the keyword arguments of its `build`, and its pretrained weights."""

    model: str
    params: dict
    weights: str | None = None


class Tuning(NamedTuple):
    """How a run is tuned before its training, see `fedlib.run.tune`.

    Attributes:
      trials: their number, the first one as declared.
      rates: [least, most] rate of the local solver.
      rung: whether most trials stop after a quarter of the rounds.
      protocol: of the clients' predictions.
      fixed: names that are not tuned, such as "local.lr".
      seed: of the split and the trials.
      per_seed: whether every training seed has a tuning of its own, whose seed is the sum of both.
    """

    trials: int
    rates: tuple[float, ...]
    rung: bool = False
    protocol: str = "default"
    fixed: tuple[str, ...] = ()
    seed: int = 0
    per_seed: bool = False

    @property
    def trainings(self) -> float:
        """Its cost, in trainings."""
        shortens = self.rung and self.trials > RUNG
        return self.trials / RUNG + -(-self.trials // RUNG) if shortens else self.trials


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What determines the result of a run besides its data and its seed.

    Attributes:
      method, model: registry names (`fedlib.methods`, `fedlib.models`); a user's method is a file.
      model_params: keyword arguments of the model's `build`; `in_features` and `num_classes` may be
        left out, because they follow from the data.
      rounds: communication rounds.
      modules: further architectures that the method needs, by the name of its field: {"gate":
        {"model": "gate_cnn", "params": {...}}}, the fields of an `Architecture`. Where clients have
        different architectures, a list of these: a client has the one at its number modulo the
        list's length (`Cohort.in_turn`), unless the method decides otherwise.
      local: the local solver: {"solver": "sgd", "lr": 0.03, "batch_size": 128, ...}, keyword
        arguments of the dataclass of that name in `fedlib.engine.solvers`.
      params: the method's hyper-parameters (its dataclass fields).
      participation: {"rate": fraction of the seen clients in a round, "aggregation": "damped" or
        "renormalised"}, and other fields of `fedlib.run.simulate.Course` that are not at their
        defaults.
      evaluate_every: rounds between evaluations; round 0 and the last are always evaluated.
      weights: pretrained weights of `model`, a table of `fedlib.data.downloads`; None for random
        ones.
      class_weights: [L] factors of the training loss by label, see `fedlib.engine.task.Task`, or
        None.
      precision: of matrix products and convolutions, see `fedlib.engine.task.Task`.
    """

    method: str
    model: str
    rounds: int
    local: dict
    model_params: dict = field(default_factory=dict)
    modules: dict[str, dict | list[dict]] = field(default_factory=dict)
    params: dict = field(default_factory=dict)
    participation: dict = field(default_factory=lambda: {"rate": 1.0, "aggregation": "damped"})
    evaluate_every: int = 1
    weights: str | None = None
    class_weights: tuple[float, ...] | None = None
    precision: str = "float32"

    @property
    def architecture(self) -> Architecture:
        """That of the model."""
        return Architecture(self.model, self.model_params, self.weights)

    @property
    def further(self) -> dict[str, Architecture | tuple[Architecture, ...]]:
        """Those of `modules`, by name; a list becomes a tuple.

        Raises:
          ConfigError: for a module that has not the fields of an `Architecture`.
        """
        return {
            name: tuple(_architecture(f"{name}[{i}]", one) for i, one in enumerate(module))
            if isinstance(module, list | tuple)
            else _architecture(name, module)
            for name, module in self.modules.items()
        }

    @property
    def architectures(self) -> dict[str, Architecture]:
        """Those of `modules`, by their place in the declaration, "gate" or "large[1]"."""
        places = {}
        for name, one in self.further.items():
            several = not isinstance(one, Architecture)
            places |= {f"{name}[{i}]": x for i, x in enumerate(one)} if several else {name: one}
        return places

    def pretrained(self) -> tuple[str, ...]:
        """Names of all pretrained weights: those of the model, then those of the modules."""
        names = (self.weights, *(one.weights for one in self.architectures.values()))
        return tuple(dict.fromkeys(filter(None, names)))

    def roots(self, stage: str) -> tuple[str, ...]:
        """Roots of the code of a job of `stage` that trains or evaluates the run."""
        models = (self.model, *(one.model for one in self.architectures.values()))
        names = [f"fedlib.models.{model}" for model in models]
        if self.participation.get("aggregation") == "gossip":
            names.append("fedlib.engine.gossip")
        method = self.method if is_file(self.method) else f"fedlib.methods.{self.method}"
        return f"scripts/{stage}.py", method, *dict.fromkeys(names)


@dataclass(frozen=True, kw_only=True)
class RunSpec(Recipe):
    """The specification of a training, and with further entries of an evaluation or a tuning.

    Attributes:
      seed: of the training.
      data: digest of the federation's specification (`fedlib.spec.Data.spec`).
      tuned: of a tuned run, digest of the specification of its tuning.
      tuning: of a tuning, the fields of `Tuning` without the seed.
      views, predictions: of an evaluation, see `fedlib.run.evaluate.final`.
    """

    seed: int
    data: str = ""
    tuned: str | None = None
    tuning: dict | None = None
    views: list[list[str]] | None = None
    predictions: list[str] | None = None

    @classmethod
    def from_json(cls, entries: Mapping, *more: str) -> Self:
        """The specification in a JSON object.

        Args:
          more: names of the further entries that it has.

        Raises:
          ConfigError: unless it has exactly these entries, of the right types.
        """
        needed = {x.name for x in fields(cls)} - {*EVALUATED, TUNED, TUNING} | {*more}
        missing = sorted(needed - entries.keys())
        unknown = sorted(entries.keys() - needed - {TUNED})
        if missing or unknown:
            raise ConfigError(f"the run specification lacks {missing} and has unknown {unknown}")
        spec = cls(**entries)
        check_types("", spec)
        names = {f"model of {place!r:.80}": x.model for place, x in spec.architectures.items()}
        names |= {"model": spec.model} | ({} if is_file(spec.method) else {"method": spec.method})
        for what, name in names.items():
            if not re.fullmatch(r"\w+", name):
                raise ConfigError(f"{what} must be a name, got {name!r:.80}")
        return spec

    def to_json(self) -> dict:
        """The JSON object of `from_json`."""
        return {
            name: value
            for name, value in vars(self).items()
            if value is not None or name not in (*EVALUATED, TUNED, TUNING)
        }

    @property
    def search(self) -> Tuning:
        """The `tuning` of a specification that has one."""
        return Tuning(**(self.tuning or {}))

    def training(self) -> Self:
        """That of the training in the specification of an evaluation."""
        return replace(self, **dict.fromkeys(EVALUATED))

    def set(self, values: Mapping[str, Any]) -> Self:
        """That of an untuned run with other values, each by its entry and name: "local.lr"."""
        changed: dict[str, Any] = {TUNED: None, TUNING: None}
        for where, value in values.items():
            entry, name = where.split(".")
            changed[entry] = {**changed.get(entry, getattr(self, entry)), name: value}
        return replace(self, **changed)


def _architecture(place: str, module: Any) -> Architecture:
    one = as_form(Architecture, module, f"modules[{place!r:.80}]")
    check_types(f"modules[{place!r:.80}].", one)
    return one


def check_types(at: str, record: Any) -> None:
    """Raise ConfigError, which starts with `at`, for a field of another type than it declares."""
    for name, hint in get_type_hints(type(record)).items():
        convert(f"{at}{name}", getattr(record, name), hint)


def is_file(method: str) -> bool:
    """Whether a method is given by its file, "mine/fedper.py", and not by its registered name."""
    return isinstance(method, str) and method.endswith(".py")


@functools.cache
def methods() -> dict[str, tuple]:
    """The project's methods, each with the `look` of its class, read without importing it."""
    files = sorted(Path(__file__).with_name("methods").glob("*.py"))
    found = {file.stem: LOOK.search(file.read_text(encoding="utf-8")) for file in files}
    return {name: ast.literal_eval(look[1]) for name, look in found.items() if look}


def class_of_file(file: str, classes: list[str]) -> str:
    """The class of a file that is called like the file, such as FedPer in fedper.py.

    Case and underscores do not matter.

    Raises:
      ConfigError: if there is none.
    """
    wanted = _plain(Path(file).stem)
    for name in classes:
        if _plain(name) == wanted:
            return name
    raise ConfigError(
        f"{file} has no class that is called like the file, as FedPer is in fedper.py; it has "
        f"{', '.join(classes) or 'no class'}"
    )


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
