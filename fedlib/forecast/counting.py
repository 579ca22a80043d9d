"""Counts of the operations of calls, without the results of large ones.

A run repeats the same calls in every round and for every split. A function takes the same number of
operations on tensors of the same forms, so it is not called a second time.

A rehearsal counts operations and does not need their results. Operators on large tensors return
zeros of the right shape, for which the system uses no memory until they are written to, and change
nothing in place. Everything else is computed.
"""

import inspect
import mmap
from collections import Counter as Times
from collections.abc import Callable
from functools import cache, lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedlib import tree
from fedlib.engine import ambient
from fedlib.federation import GROUPS, Federation
from fedlib.run.cost import FORMULAS, Operations
from fedlib.tree import Rows

NORM = torch.ops.aten._native_batch_norm_legit_no_training
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


class Counted(NamedTuple):
    """The result of a call, and its operations.

    Attributes:
      flops: floating-point operations.
      forward: numbers in the results of all matrix products and convolutions outside of backward
        passes, for which they are kept.
      largest: numbers in the largest of these results.
    """

    result: Any
    flops: float
    forward: float
    largest: float


class Counter:
    """Counts the operations of calls; later calls of the same kind get the first one's result."""

    def __init__(self):
        self._known: dict[Any, Counted] = {}
        self._kept: list = []  # so that no other object gets the identity of one in a key

    def count(self, call: Callable, *like: Any) -> Counted:
        """The result and operations of `call()`, or of an earlier call with the same `like`.

        Args:
          like: functions, tensors and numbers that determine the number of operations.
        """
        key = self._key(like)
        if key not in self._known:
            # Stacked experts avoid torch's fused LSTM, which has no formula.
            with _Counting() as counting, ambient.stacked_experts(True):
                result = call()
            self._known[key] = Counted(result, counting.flops, counting.forward, counting.largest)
        return self._known[key]

    def _key(self, x: Any) -> Any:
        """A key that is equal for equal numbers of operations; ignores values of floats."""
        if isinstance(x, torch.Tensor):
            return form(x)
        if isinstance(x, dict):
            return tuple((name, self._key(inner)) for name, inner in x.items())
        if isinstance(x, list | tuple):
            return (type(x), *map(self._key, x))
        if isinstance(x, partial):
            return self._key((x.func, x.args, x.keywords))
        if inspect.ismethod(x):
            return x.__func__, self._key(x.__self__)
        if inspect.isfunction(x):
            return x.__code__, self._key([cell.cell_contents for cell in x.__closure__ or ()])
        if isinstance(x, float):
            return float
        if isinstance(x, bool | int | str | None):
            return x
        self._kept.append(x)
        return id(x)


class _Counting(Operations):
    """Counts operations, and the numbers in their results, see `Counted`."""

    def __init__(self):
        super().__init__()
        self.forward = self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if _is_composite(func):
            return super().__torch_dispatch__(func, types, args, kwargs)
        output = func(*args, **(kwargs or {}))
        if formula := FORMULAS.get(func.overloadpacket):
            self.flops += 2 * formula(args, output)
            if isinstance(output, torch.Tensor) and torch._C._current_graph_task_id() == -1:
                self.forward += output.numel()
                self.largest = max(self.largest, output.numel())
        return output


@cache
def _is_composite(func: Any) -> bool:
    """Whether an operator may consist of products; leaves out batch normalisation, to save time."""
    made_of = torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    )
    return made_of and func.overloadpacket is not NORM


def stacked(state: Any) -> int:
    """Numbers in a state besides those in `Rows`; tensors that share memory count once."""
    parts: list = []
    tree.map_clients(parts.append, state)
    others = {id(x): x for x in parts if type(x) is not Rows}
    return sum(x.untyped_storage().nbytes() // x.element_size() for x in others.values())


def of_rows(state: Any, federation: Federation) -> tuple[dict[str, int], int]:
    """Numbers in the `Rows` of a state.

    Owners that have not trained share the tensors of their rows.

    Returns:
      (most numbers that an owner has alone, by group; numbers that several owners share).
    """
    alone, common = [0] * federation.num_clients, {}
    for rows in tree.rows_in(state):
        leaves = [tree.leaves(row) for row in rows]
        times = Times(id(x) for row in leaves for x in row)
        for owner, row in enumerate(leaves):
            alone[owner] += sum(x.numel() for x in row if times[id(x)] == 1)
            common |= {id(x): x.numel() for x in row if times[id(x)] > 1}
    by_group = {group: [alone[i] for i in federation.ids(group)] for group in GROUPS}
    most = {group: max(numbers) for group, numbers in by_group.items() if numbers}
    return most, sum(common.values())


def largest(state: Any) -> float:
    """Numbers of each client in the largest `Rows` of a state."""
    return max((tree.numel(rows) / len(rows) for rows in tree.rows_in(state)), default=0.0)


def longer(method: Any, brief: Any) -> float:
    """Ratio of the epochs of a method to those of its brief form (`Method.briefly`)."""
    pairs = ((v, getattr(brief, n)) for n, v in vars(method).items() if isinstance(v, int))
    return max((long / short for long, short in pairs if short and long > short), default=1.0)
