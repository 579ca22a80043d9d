"""Checks of parameters of sources and partitions; each raises ConfigError."""

import dataclasses
import math
from collections.abc import Iterable

from fedlib import fields
from fedlib.errors import ConfigError
from fedlib.fields import Range

# Of the parameters of partitions; one has the same range in each kind.
RANGES = {
    **dict.fromkeys(("alpha", "beta", "label_alpha", "sigma"), Range(0, ends="()")),
    **dict.fromkeys(("fraction", "majority", "share_to"), Range(0, 1, "(]")),
    **dict.fromkeys(("p", "share"), Range(0, 1)),
    **dict.fromkeys(("unseen_fraction", "val_fraction"), Range(0, 1, "[)")),
    "train_fraction": Range(0, 1, "()"),
    **dict.fromkeys(("probe_per_class", "probe_writers", "val_per_class"), Range(0)),
}
CHOICES = {
    "order": ("given", "random"),
    "rest": ("others", "all"),
    "unseen": ("drawn", "last", "test_part"),
}


class Checked:
    """Base class of partitions, which checks their fields: types, ranges, choices."""

    def __post_init__(self):
        """Raises ConfigError for a value that makes no sense; a whole number is at least 1."""
        kinds = {field.name: field.type for field in dataclasses.fields(self)}
        counts = {name: Range(1) for name, kind in kinds.items() if kind in (int, int | None)}
        ranges = {name: x for name, x in (counts | RANGES).items() if name in kinds}
        choices = {name: known for name, known in CHOICES.items() if name in kinds}
        fields.check(self, choices, ranges)


def check_fraction(name: str, value: float, *, zero: bool = False, one: bool = False) -> None:
    """Raises ConfigError unless `value` is in (0, 1); `zero` and `one` include that end."""
    interval = f"{'[' if zero else '('}0, 1{']' if one else ')'}"
    if not _is_number(value) or not (
        0 < value < 1 or (zero and value == 0) or (one and value == 1)
    ):
        raise ConfigError(f"{name} must be in {interval}, got {value!r}")


def check_count(name: str, value: int, least: int = 1, most: int | None = None) -> None:
    """Raises ConfigError unless `value` is an integer of at least `least`, and at most `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} must be an integer of at least {least}, got {value!r}")
    if most is not None and value > most:
        raise ConfigError(f"{name} must be at most {most}, got {value}")


def check_positive(name: str, value: float) -> None:
    """Raises ConfigError unless `value` is a positive, finite number."""
    if not _is_number(value) or not 0 < value < math.inf:
        raise ConfigError(f"{name} must be a positive number, got {value!r}")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raises ConfigError unless `value` is one of the `choices`."""
    if value not in list(choices):
        raise ConfigError(f"no {name} {value!r}; choose one of {', '.join(choices)}")


def check_seed(seed: int) -> None:
    """Raises ConfigError unless all random generators accept this seed."""
    check_count("seed", seed, least=0, most=2**32 - 1)  # of NumPy's legacy generator


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
