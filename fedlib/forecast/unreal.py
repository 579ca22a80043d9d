"""Large tensors without their numbers, for rehearsals: memory that nobody touches costs nothing.

A rehearsal asks how many operations a run takes, and not what they result in. Where a tensor is
large, operators give zeros of the right shape, which the system keeps no memory for until somebody
writes to them, and leave alone what they would change in place. All else is computed.
"""

import mmap
from functools import cache, lru_cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LARGE = 2**15  # numbers, with which an operator takes longer than looking up its result's shape
KNOWN = 2**16  # operators with shapes whose results are looked up


class Form(NamedTuple):
    """All that an operator needs of a tensor to tell the form of its result."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class Unreal(TorchDispatchMode):
    """While it is entered, operators on large tensors result in zeros."""

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
        forms = _result(func, form(args), form(tuple(kwargs.items())))
        if made and not _has_large(forms):
            return func(*args, **kwargs)
        return _zeros(forms)


@cache
def _kind(func: Any) -> tuple[bool, bool, bool]:
    """Whether an operator shows its first argument, changes it, or makes a tensor of its own."""
    name = func.overloadpacket.__name__
    return func.is_view, name.endswith("_"), name.startswith(("empty", "new_"))


@lru_cache(KNOWN)
def _result(func: Any, args: tuple, kwargs: tuple) -> Any:
    """The form of what an operator results in."""
    return form(func(*_hollow(args), **dict(_hollow(kwargs))))


def _is_large(x: Any) -> bool:
    if isinstance(x, torch.Tensor):
        return x.numel() >= LARGE
    return isinstance(x, list | tuple) and any(map(_is_large, x))


def _has_large(form: Any) -> bool:
    return isinstance(form, Form) and prod(form.shape) >= LARGE


def form(x: Any) -> Any:
    """`x` with forms in place of its tensors, and no device but that of forms."""
    if isinstance(x, torch.Tensor):
        return Form(tuple(x.shape), x.stride(), x.dtype)
    if isinstance(x, list | tuple):
        return tuple(map(form, x))
    return torch.device("meta") if isinstance(x, torch.device) else x


def _hollow(x: Any) -> Any:
    """`x` with tensors without numbers in place of its forms."""
    if isinstance(x, Form):
        return torch.empty_strided(*x[:2], dtype=x.dtype, device="meta")
    return tuple(map(_hollow, x)) if isinstance(x, tuple) else x


def _zeros(x: Any) -> Any:
    """`x` with zeros in place of its forms, in memory of their own."""
    if not isinstance(x, Form):
        return tuple(map(_zeros, x)) if isinstance(x, tuple) else x
    spread = sum(step * (size - 1) for step, size in zip(x.stride, x.shape, strict=True))
    memory = mmap.mmap(-1, (max(spread, 0) + 1) * x.dtype.itemsize)
    return torch.frombuffer(memory, dtype=x.dtype).as_strided(x.shape, x.stride)
