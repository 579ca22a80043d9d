"""The values that tuning tries, which must be among the allowed ones; and all settings in words."""

import inspect
from collections.abc import Collection, Mapping
from math import exp, inf, log
from typing import Any, ClassVar, NamedTuple, get_origin

from fedlib.fields import Range as Range


class Uniform(NamedTuple):
    """Numbers tried by tuning, uniform from `low` to `high`."""

    low: float
    high: float

    def at(self, share: float) -> float:
        """The number at a share in [0, 1) of the way, with four digits."""
        return float(f"{self.low + share * (self.high - self.low):.4g}")

    def share(self, value: float) -> float:
        """The share of the way at which `value` lies; below 0 or above 1 outside the range."""
        return (value - self.low) / (self.high - self.low)


class LogUniform(NamedTuple):
    """Positive numbers tried by tuning, uniform in their logarithm from `low` to `high`."""

    low: float
    high: float

    def at(self, share: float) -> float:
        """The number at a share in [0, 1) of the way, with four digits."""
        return float(f"{exp(log(self.low) + share * log(self.high / self.low)):.4g}")

    def share(self, value: float) -> float:
        """The share of the way at which `value` lies; below 0 or above 1 outside the range."""
        return log(value / self.low) / log(self.high / self.low) if value > 0 else -inf


class OneOf(NamedTuple):
    """Values tried by tuning, each equally often."""

    values: tuple

    def at(self, share: float) -> Any:
        """The value at a share in [0, 1) of the list."""
        return self.values[int(share * len(self.values))]


Tried = Uniform | LogUniform | OneOf


def check_space(
    owner: str,
    space: Mapping[str, Tried],
    fields: Collection[str],
    choices: Mapping[str, tuple[str, ...]],
    ranges: Mapping[str, Range],
) -> None:
    """Raises ValueError if the space of class `owner` has values that its fields may not have."""
    for name, tried in space.items():
        where = f"SPACE of {owner}: {name}"
        if name not in fields:
            raise ValueError(f"{where} is none of its fields")
        if not isinstance(tried, Tried):
            raise ValueError(f"{where} must be Uniform, LogUniform or OneOf, got {tried!r}")
        least = 0 if isinstance(tried, LogUniform) else -inf
        if not isinstance(tried, OneOf) and not least < tried.low < tried.high < inf:
            raise ValueError(f"{where} must go from a lower to a higher number, got {tried}")
        ends = tried.values if isinstance(tried, OneOf) else tried
        for value in (value for value in ends if value is not None):
            if name in choices and value not in choices[name]:
                raise ValueError(f"{where} must be one of {choices[name]}, got {value!r}")
            if name in ranges and not ranges[name].holds(value):
                raise ValueError(f"{where} must be {ranges[name]}, got {value!r}")


def describe(kind: type, choices: Mapping[str, tuple], ranges: Mapping[str, Range]) -> str:
    """The settings of a class of methods: a line for each with type, default and allowed values."""
    lines = []
    for base in reversed(kind.__mro__):
        for name, hint in inspect.get_annotations(base).items():
            if name == "task" or get_origin(hint) is ClassVar or hint is ClassVar:
                continue
            default = f" = {getattr(kind, name)!r}" if hasattr(kind, name) else ""
            allowed = f", one of {', '.join(map(str, choices[name]))}" if name in choices else ""
            allowed = f", {ranges[name]}" if name in ranges else allowed
            where = "" if base is kind else f"; see {base.__name__}"
            lines.append(f"* {name}: {inspect.formatannotation(hint)}{default}{allowed}{where}")
    return "\n".join(["All settings, with their defaults and what they may be:", "", *lines])
