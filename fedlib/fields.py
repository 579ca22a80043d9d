"""Types and allowed values of settings: fields of methods, solvers, schedules and courses."""

import contextlib
import math
import operator
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from numbers import Real
from typing import Any, NamedTuple

from fedlib.errors import ConfigError, quote

NUMBERS = {int: "a whole number", float: "a finite number"}
WORDS = NUMBERS | {bool: "True or False", str: "a word", types.NoneType: "None"}
WORDS |= dict.fromkeys((Mapping, dict), "a dict")
UNIONS = typing.Union, types.UnionType


def is_ours(kind: type) -> bool:
    """Whether a class is fedlib's own, not a user's or another library's."""
    return kind.__module__.startswith("fedlib.")


class Range(NamedTuple):
    """The numbers from `low` to `high`.

    Attributes:
      low, high: the ends; `Range(1)` is "at least 1".
      ends: the ends that belong to the range: "[]" both, "(]" the high one, "[)" the low one, "()"
        neither; `Range(0, ends="(]")` is "above 0".
    """

    low: float
    high: float = math.inf
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
        if self.high == math.inf:
            return f"{'at least' if left == '[' else 'above'} {self.low}"
        return f"in {left}{self.low}, {self.high}{right}"


def check(
    made: Any,
    choices: Mapping[str, tuple[str, ...]] | None = None,
    ranges: Mapping[str, Range] | None = None,
) -> None:
    """Raises ConfigError for a field of `made` of another type, outside its choices or its range.

    The types are the annotations of its dataclass. Numbers that are not Python's own, such as
    NumPy's, become that, and lists become tuples. A field may always have its default.
    """
    hints = _hints(type(made))
    for field in fields(made):
        value = getattr(made, field.name)
        if field.name in hints and value is not field.default:
            object.__setattr__(made, field.name, convert(field.name, value, hints[field.name]))
    for name, known in (choices or {}).items():
        if (value := getattr(made, name)) not in known:
            raise ConfigError(f"{name} must be one of {known}, got {quote(value)}")
    for name, numbers in (ranges or {}).items():
        value, optional = getattr(made, name), getattr(type(made), name, math.inf) is None
        if not (numbers.holds(value) or optional and value is None):
            raise ConfigError(f"{name} must be {numbers}, got {quote(value)}")


def convert(name: str, value: Any, hint: Any) -> Any:
    """`value`, with Python's own numbers and tuples; raises ConfigError if it is of another type.

    Args:
      name: of the setting, for the message.
      hint: its type, such as `int | None`. One that is neither of JSON nor of fedlib, nor
        a `Literal`, takes all.
    """
    try:
        return _as(value, hint)
    except (OverflowError, TypeError, ValueError):
        raise ConfigError(f"{name} must be {_words(hint)}, got {quote(value)}") from None


def as_form(form: Any, one: object, where: str) -> Any:
    """The mapping `one` as the named tuple `form`.

    Raises:
      ConfigError: whose message starts with `where`, if keys are missing or unknown.
    """
    needed = [name for name in form._fields if name not in form._field_defaults]
    if not isinstance(one, Mapping) or not {*needed} <= one.keys() <= {*form._fields}:
        parts = " and ".join(needed), ", ".join(form._field_defaults)
        raise ConfigError(f"{where} has {', maybe '.join(filter(None, parts))}; got {quote(one)}")
    return form(**one)


def _as(value: Any, hint: Any) -> Any:
    """`value` as a `hint`; raises TypeError, ValueError or OverflowError if it is none."""
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in UNIONS:
        for kind in inner:
            with contextlib.suppress(OverflowError, TypeError, ValueError):
                return _as(value, kind)
        raise TypeError
    if origin in (*NUMBERS, bool, list, tuple) and type(value).__module__ == "numpy":
        value = value.tolist()  # without an import of NumPy
    if origin is typing.Literal and value not in inner:
        raise ValueError
    if origin in NUMBERS:
        return _as_number(value, origin)
    if origin is dict and inner and isinstance(value, dict):
        return {_as(key, inner[0]): _as(x, inner[1]) for key, x in value.items()}
    if origin in (list, tuple) and isinstance(value, list | tuple | range):
        same = not inner or origin is list or inner[-1] is ...
        kinds = (inner or (Any,))[:1] * len(value) if same else inner
        return origin(_as(x, kind) for x, kind in zip(value, kinds, strict=True))
    ours = isinstance(origin, type) and is_ours(origin)
    if (ours or origin in (*WORDS, list, tuple)) and not isinstance(value, origin):
        raise TypeError
    return value


def _as_number(value: Any, kind: type) -> float:
    """`value`, or Python's own number in place of another library's."""
    if isinstance(value, bool) or kind is float and not isinstance(value, Real):
        raise TypeError
    number = operator.index(value) if kind is int else float(value)
    if not math.isfinite(number):
        raise ValueError
    return value if type(value) in NUMBERS else number


def _words(hint: Any) -> str:
    """What a value of a type is, for messages."""
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in UNIONS:
        return " or ".join(map(_words, inner))
    if origin in (list, tuple):
        return "a list" + (f", each of it {_words(inner[0])}" if inner else "")
    if origin in WORDS or origin is typing.Literal:
        return WORDS.get(origin, f"one of {inner}")
    name = getattr(origin, "__name__", str(origin))
    return f"a{'n' * (name[0] in 'AEIOU')} {name}"


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of the fields of a class; without those whose names are not known there."""
    try:
        return typing.get_type_hints(kind)
    except (NameError, TypeError):
        return {x.name: x.type for x in fields(kind) if not isinstance(x.type, str)}
