"""Operations of what executors call, each counted once.

A run does the same again and again: round by round, split by split. What a function computes with
tensors of the same forms takes as many operations, so it is not computed a second time.
"""

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch

from fedlib.engine import ambient
from fedlib.forecast.unreal import form
from fedlib.run.cost import FORMULAS, Operations

NORM = torch.ops.aten._native_batch_norm_legit_no_training


class Counted(NamedTuple):
    """What a call resulted in, and took.

    Attributes:
      flops: floating-point operations.
      numbers: results of matrix products and convolutions.
    """

    result: Any
    flops: float
    numbers: float


class Counter:
    """Counts what calls take, and gives those that are alike the result of the first of them."""

    def __init__(self):
        self._known: dict[Any, Counted] = {}
        self._kept: list = []  # so that no other object gets the identity of one in a key

    def count(self, call: Callable, *like: Any) -> Counted:
        """`call()`, unless one with the same `like` is known.

        Args:
          like: all that what is computed depends on: functions, tensors, numbers.
        """
        key = self._key(like)
        if key not in self._known:
            # Spelled-out recurrence instead of torch's fused LSTM, which has no formula.
            with _Counting() as counting, ambient.stacked_experts(True):
                self._known[key] = Counted(call(), counting.flops, counting.numbers)
        return self._known[key]

    def _key(self, x: Any) -> Any:
        """What is equal for what takes as many operations; rates and the like are all the same."""
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
    """Counts operations, and the numbers that matrix products and convolutions result in."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if _is_composite(func):
            return super().__torch_dispatch__(func, types, args, kwargs)
        output = func(*args, **(kwargs or {}))
        if formula := FORMULAS.get(func.overloadpacket):
            self.flops += 2 * formula(args, output)
            self.numbers += output.numel() if isinstance(output, torch.Tensor) else 0
        return output


@cache
def _is_composite(func: Any) -> bool:
    """Whether an operator may be made of products; batch normalisation takes long to take apart."""
    made_of = torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    )
    return made_of and func.overloadpacket is not NORM
