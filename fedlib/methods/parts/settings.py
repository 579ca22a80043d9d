"""Allowed values of settings (names, ranges of numbers), and the values that tuning tries."""

from collections.abc import Collection, Mapping
from math import exp, inf, log
from numbers import Real
from typing import Any, NamedTuple


class Range(NamedTuple):
    """The numbers from `low` to `high`.

    Attributes:
      low, high: the ends; `Range(1)` is "at least 1".
      ends: the ends that belong to the range: "[]" both, "(]" the high one, "[)" the low one, "()"
        neither; `Range(0, ends="(]")` is "above 0".
    """

    low: float
    high: float = inf
    ends: str = "[]"

    def holds(self, value: Any) -> bool:
        """Whether `value` is a number of this range."""
        if not isinstance(value, Real):
            return False
        above = self.low <= value if self.ends[0] == "[" else self.low < value
        below = value <= self.high if self.ends[1] == "]" else value < self.high
        return above and below

    def __str__(self) -> str:
        left, right = self.ends
        if self.high == inf:
            return f"{'at least' if left == '[' else 'above'} {self.low}"
        return f"in {left}{self.low}, {self.high}{right}"


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


def check(
    made: object,
    choices: Mapping[str, tuple[str, ...]],
    ranges: Mapping[str, Range],
) -> None:
    """Raises ValueError for a field of `made` outside its choices or its range.

    A field whose default is None may be None.
    """
    for name, known in choices.items():
        if (value := getattr(made, name)) not in known:
            raise ValueError(f"{name} must be one of {known}, got {value!r}")
    for name, numbers in ranges.items():
        value, optional = getattr(made, name), getattr(type(made), name, inf) is None
        if not (numbers.holds(value) or optional and value is None):
            raise ValueError(f"{name} must be {numbers}, got {value!r}")
