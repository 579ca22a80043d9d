"""Large tensors without values, for rehearsals; they need no memory.

A rehearsal counts operations and does not need their results. Operators on large tensors return
zeros of the right shape, for which the system uses no memory until they are written to, and change
nothing in place. Everything else is computed.
"""

import mmap
from functools import cache, lru_cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LARGE = 2**15  # numbers; a look-up of the result's shape is faster than an operator on so many
KNOWN = 2**16  # most operators with shapes that are kept for look-ups


class Form(NamedTuple):
    """The properties of a tensor that determine the form of an operator's result."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class Unreal(TorchDispatchMode):
    """In this block, operators on large tensors return zeros."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as `fedlib.run.cost.Operations`

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """The result of an operator, or zeros."""
        kwargs, (is_view, in_place, made) = kwargs or {}, _kind(func)
        if is_view or not (made or any(map(_is_large, args))):
            return func(*args, **kwargs)
        if in_place:
            return args[0] if func._schema.returns else None
        try:
            forms = _result(func, form(args), form(tuple(kwargs.items())))
        except NotImplementedError:  # it depends on numbers, as where a mask chooses
            return func(*args, **kwargs)
        if made and not _has_large(forms):
            return func(*args, **kwargs)
        return _zeros(forms)


@cache
def _kind(func: Any) -> tuple[bool, bool, bool]:
    """Whether an operator returns a view, changes its argument in place, or makes a new tensor."""
    name = func.overloadpacket.__name__
    return func.is_view, name.endswith("_"), name.startswith(("empty", "new_"))


@lru_cache(KNOWN)
def _result(func: Any, args: tuple, kwargs: tuple) -> Any:
    """The form of an operator's result."""
    return form(func(*_hollow(args), **dict(_hollow(kwargs))))


def _is_large(x: Any) -> bool:
    if isinstance(x, torch.Tensor):
        return x.numel() >= LARGE
    return isinstance(x, list | tuple) and any(map(_is_large, x))


def _has_large(form: Any) -> bool:
    return isinstance(form, Form) and prod(form.shape) >= LARGE


def form(x: Any) -> Any:
    """`x` with forms in place of its tensors, and "meta" in place of devices."""
    if isinstance(x, torch.Tensor):
        return Form(tuple(x.shape), x.stride(), x.dtype)
    if isinstance(x, list | tuple):
        return tuple(map(form, x))
    return torch.device("meta") if isinstance(x, torch.device) else x


def _hollow(x: Any) -> Any:
    """`x` with tensors without values in place of its forms."""
    if isinstance(x, Form):
        return torch.empty_strided(*x[:2], dtype=x.dtype, device="meta")
    return tuple(map(_hollow, x)) if isinstance(x, tuple) else x


def _zeros(x: Any) -> Any:
    """`x` with new zeros in place of its forms."""
    if not isinstance(x, Form):
        return tuple(map(_zeros, x)) if isinstance(x, tuple) else x
    spread = sum(step * (size - 1) for step, size in zip(x.stride, x.shape, strict=True))
    memory = mmap.mmap(-1, (max(spread, 0) + 1) * x.dtype.itemsize)
    return torch.frombuffer(memory, dtype=x.dtype).as_strided(x.shape, x.stride)
