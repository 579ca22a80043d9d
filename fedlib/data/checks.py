"""Checks of parameters of sources and partitions; each raises ConfigError."""

import math
from collections.abc import Iterable
from dataclasses import fields

from fedlib.errors import ConfigError


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


def check_counts(owner: object, *names: str, least: int = 1) -> None:
    """Checks these fields of a dataclass by `check_count`; None is valid where it is the default.

    Raises:
      ConfigError: as `check_count`.
    """
    for field in fields(owner):
        value = getattr(owner, field.name)
        if field.name in names and not (value is None and field.default is None):
            check_count(field.name, value, least)


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
