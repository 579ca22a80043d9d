"""Checks of parameters of sources and partitions; each raises ConfigError."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fedlib.errors import ConfigError, quote
from fedlib.fields import Range, convert

# Of the parameters of partitions and data sets; one has the same range wherever it is.
RANGES = {
    **dict.fromkeys(("alpha", "beta", "label_alpha", "sigma"), Range(0, ends="()")),
    **dict.fromkeys(("fraction", "majority", "share_to"), Range(0, 1, "(]")),
    **dict.fromkeys(("divergence", "p", "share"), Range(0, 1)),
    **dict.fromkeys(("test_fraction", "unseen_fraction", "val_fraction"), Range(0, 1, "[)")),
    "train_fraction": Range(0, 1, "()"),
    **dict.fromkeys(("probe", "probe_per_class", "probe_writers", "server_val"), Range(0)),
    **dict.fromkeys(("test_examples", "test_per_class", "val_examples", "val_per_class"), Range(0)),
    "num_classes": Range(1, 100_000),  # every client has a count of each
    **dict.fromkeys(("seed", "replicate"), Range(0, 2**32 - 1)),  # of NumPy's legacy generator
    "length": Range(3),  # BERT marks the two ends of a text
}
CHOICES = {
    "order": ("given", "random"),
    "rest": ("others", "all"),
    "unseen": ("drawn", "last", "test_part"),
}


def validate(name: str, value: Any, kind: Any) -> Any:
    """Check the value of a parameter; returns it with Python's own numbers.

    Args:
      kind: its type; a whole number is at least 1 unless `RANGES` says otherwise.

    Raises:
      ConfigError: for another type, or a value out of its range or choices.
    """
    value = convert(name, value, kind)
    numbers = RANGES.get(name, Range(1) if kind in (int, int | None) else None)
    if numbers and value is not None and not numbers.holds(value):
        raise ConfigError(f"{name} must be {numbers}, got {value!r}")
    if value not in (known := CHOICES.get(name, (value,))):
        raise ConfigError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return value


def column_places(names: Sequence, wanted: Sequence) -> list[int]:
    """Where each of the columns `wanted` is among the columns `names` of a data frame.

    Raises:
      ConfigError: unless both have the same columns, each once.
    """
    place = {name: position for position, name in enumerate(names)}
    if odd := sorted(place.keys() ^ {*wanted}, key=str):
        raise ConfigError(f"the columns {quote(odd)} are in one alone")
    if len(names) > len(place) or len(wanted) > len(place):
        raise ConfigError("several columns have the same name; give each another")
    return [place[name] for name in wanted]


class Checked:
    """Base class of partitions, whose fields are checked."""

    @property
    def kind(self) -> str:
        """Name of its module, and of its random streams."""
        return type(self).__module__.rpartition(".")[2]

    def __post_init__(self):
        """Raises ConfigError for a value that makes no sense."""
        for field in dataclasses.fields(self):
            value = validate(field.name, getattr(self, field.name), field.type)
            object.__setattr__(self, field.name, value)


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raises ConfigError unless `value` is one of the `choices`."""
    if value not in list(choices):
        raise ConfigError(f"no {name} {value!r}; choose one of {', '.join(choices)}")


def check_names(what: str, given: Iterable[str], takes: Callable, *others: str) -> None:
    """Raises ConfigError for parameters that something does not have, or that are missing.

    Args:
      takes: a function of the parameters, and of the `others`, which nobody gives here.
    """
    found = inspect.signature(takes).parameters.values()
    known = {x.name: x.default is x.empty for x in found if x.name not in others}
    for name in [*given, *(name for name, needed in known.items() if needed)]:
        if name not in known or name not in given:
            problem = "has no parameter" if name not in known else "needs the parameter"
            raise ConfigError(f"{what} {problem} {name!r}; it takes {', '.join(known) or 'none'}")


def check_multiple(name: str, value: int | None, of: int, why: str = "") -> None:
    """Raises ConfigError unless `value` is a multiple of a number, or None."""
    if value is not None and value % of:
        raise ConfigError(f"{name} must be a multiple of {of}{why}, got {value}")
