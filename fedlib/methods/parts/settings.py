"""Which values a setting may have: one of some names, or a number in a range."""

from collections.abc import Mapping
from math import inf
from numbers import Real
from typing import Any, NamedTuple


class Range(NamedTuple):
    """The numbers from `low` to `high`.

    Attributes:
      low, high: its ends; `Range(1)` is "at least 1".
      ends: which of them belong to it: "[]" both, "(]" the high one, "[)" the low one, "()" none;
        `Range(0, ends="(]")` is "above 0".
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


def check(
    made: object,
    choices: Mapping[str, tuple[str, ...]],
    ranges: Mapping[str, Range],
) -> None:
    """Raises ValueError for a field of `made` that is none of its choices or out of its range.

    A field whose default is None may be None.
    """
    for name, known in choices.items():
        if (value := getattr(made, name)) not in known:
            raise ValueError(f"{name} must be one of {known}, got {value!r}")
    for name, numbers in ranges.items():
        value, optional = getattr(made, name), getattr(type(made), name, inf) is None
        if not (numbers.holds(value) or optional and value is None):
            raise ValueError(f"{name} must be {numbers}, got {value!r}")
