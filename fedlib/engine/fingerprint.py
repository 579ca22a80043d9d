"""Keys for functions: equal keys mean the same code and closure, except for values of tensors.

A captured step reads the tensors with which it was captured. Another round may replay it only if
its function differs in nothing but the values of tensors, and those must be known. `walk` finds
them, or raises an error.
"""

import types
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from fedlib.engine.task import Task

PLAIN = (
    bool, int, float, str, bytes, types.NoneType, torch.dtype, torch.device, frozenset, type,
    types.BuiltinFunctionType,
)  # fmt: skip
LIBRARIES = ("fedlib", "torch", "numpy")  # whose functions read nothing that changes
DEPTH = 3  # levels of containers and objects that are compared in a user's global


class Opaque(Exception):
    """An object that `walk` cannot compare."""


def walk(value: Any, put: Callable[[Tensor], Tensor], fixed: tuple = ()) -> tuple[Hashable, Any]:
    """(key, copy) of a function or tree: the key ignores values of tensors, the copy has others.

    Two values with equal keys compute the same from the same tensors. What a user's function reads
    from its module is in the key, up to objects inside of objects.

    Args:
      put: called with every tensor, in the same order for equal keys; the copy has its results in
        place of the tensors.
      fixed: types, besides `Task` and `Module`, whose instances do not change during a run; they
        are compared by identity.

    Raises:
      Opaque: for objects of other types, whose type the message names, for tensors that are sparse
        or nested, and for functions that read themselves.
    """

    def each(values: Any) -> tuple[tuple, list]:
        pairs = [walk(v, put, fixed) for v in values]
        return tuple(key for key, _ in pairs), [copy for _, copy in pairs]

    kind = type(value)
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_nested:
            raise Opaque("a tensor that is sparse or nested")
        spread = value.dim() > 0 and value.stride(0) == 0
        return ("tensor", value.shape, value.dtype, value.device, spread), put(value)
    if isinstance(value, PLAIN):
        return (kind, value), value
    if isinstance(value, (Task, nn.Module, *fixed)):
        return (kind, id(value)), value
    if kind is dict:
        keys, copies = each(value.values())
        return (kind, tuple(value), keys), dict(zip(value, copies, strict=True))
    if isinstance(value, tuple | list):
        keys, copies = each(value)
        return (kind, keys), kind(*copies) if hasattr(kind, "_fields") else kind(copies)
    if kind is types.FunctionType:
        return _function(value, each)
    if kind is types.MethodType:
        keys, (function, owner) = each((value.__func__, value.__self__))
        return (kind, keys), types.MethodType(function, owner)
    if kind is partial:
        keys, (function, args, named) = each((value.func, value.args, value.keywords))
        return (kind, keys), partial(function, *args, **named)
    if is_dataclass(value) and kind.__dataclass_params__.frozen:
        return (kind, _settings(value, fixed)), value
    raise Opaque(f"a {kind.__name__}, which may change from round to round")


def _function(function: types.FunctionType, each: Callable) -> tuple[Hashable, Any]:
    given = function.__defaults__ or (), function.__kwdefaults__ or {}
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        keys, (defaults, named, cells) = each((*given, cells))
    except (RecursionError, ValueError) as error:
        raise Opaque("a function that reads itself, or a name without a value") from error
    code, there = function.__code__, function.__globals__
    closure = tuple(map(types.CellType, cells))
    copy = types.FunctionType(code, there, function.__name__, defaults, closure)
    copy.__kwdefaults__ = named
    same = code, id(there), _globals(function, set())
    return (types.FunctionType, *same, keys), copy


def _globals(function: types.FunctionType, seen: set) -> Hashable:
    """A key of what a user's function, and those that it calls, read from their modules by name."""
    library = (function.__module__ or "").partition(".")[0] in LIBRARIES
    if library or function.__code__ in seen:
        return ()
    seen.add(function.__code__)
    names, there = {*names_in(function.__code__)}, function.__globals__
    read = {name: there[name] for name in sorted(names & there.keys())}
    return tuple(
        _globals(x, seen) if isinstance(x, types.FunctionType) else _content(x, names, DEPTH)
        for x in read.values()
    )


def names_in(code: types.CodeType) -> list[str]:
    """The names of globals and attributes in a function, then in those inside of it."""
    inner = [names_in(x) for x in code.co_consts if isinstance(x, types.CodeType)]
    return [*code.co_names, *chain(*inner)]


def _content(value: Any, names: set[str], depth: int) -> Hashable:
    """A key of a global: of the plain values in its items, or in its attributes among `names`."""
    if isinstance(value, PLAIN) and not isinstance(value, type):
        return type(value), value
    if not depth or isinstance(value, Tensor):
        return id(value)
    if isinstance(value, dict | list | tuple):
        same, items = type(value), value.items() if isinstance(value, dict) else enumerate(value)
    else:
        attributes = getattr(value, "__dict__", {})
        same, items = id(value), [(x, attributes[x]) for x in sorted(names & attributes.keys())]
    return same, tuple((key, _content(x, names, depth - 1)) for key, x in items)


def _settings(value: Any, fixed: tuple) -> tuple:
    """Keys of the fields of a frozen dataclass, and of what was set later, without tensors."""

    def refuse(_: Tensor) -> Tensor:
        raise Opaque(f"a {type(value).__name__} with tensors in its fields")

    later = [(x, y) for x, y in getattr(value, "__dict__", {}).items() if isinstance(y, PLAIN)]
    settings = (walk(getattr(value, f.name), refuse, fixed)[0] for f in fields(value))
    return *settings, *sorted(later, key=lambda pair: pair[0])
