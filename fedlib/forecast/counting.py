"""Counts of the operations of calls; each kind of call is counted once.

A run repeats the same calls in every round and for every split. A function takes the same number of
operations on tensors of the same forms, so it is not called a second time.
"""

import inspect
from collections import Counter as Times
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch

from fedlib import tree
from fedlib.engine import ambient
from fedlib.federation import GROUPS, Federation
from fedlib.forecast.unreal import form
from fedlib.run.cost import FORMULAS, Operations
from fedlib.tree import Rows

NORM = torch.ops.aten._native_batch_norm_legit_no_training


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
