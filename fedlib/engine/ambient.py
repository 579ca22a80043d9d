"""Context that the engine sets for the code it runs, without passing it through every signature.

It has the key from which dropout masks and random crops are drawn, how often each random layer has
drawn from it, the number of the expert, and whether experts are stacked (batched execution) or
visited one by one (client by client). Methods see none of it.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar

from torch import Tensor, nn

_EXPERT_STRIDE = 0x9E3779B97F  # keys are below 2**62, so a few million experts fit in int64

_key: ContextVar[Tensor | int | None] = ContextVar("dropout_key", default=None)
_uses: ContextVar[Counter] = ContextVar("uses_of_layers")
_expert: ContextVar[Tensor | int] = ContextVar("expert", default=0)
_stacked: ContextVar[bool] = ContextVar("stacked_experts", default=False)


class NoKeyError(RuntimeError):
    """A random layer was called without a key."""


@contextlib.contextmanager
def dropout_key(key: Tensor | None) -> Iterator[None]:
    """Dropout and all other random layers draw from `key`, a scalar int64, inside this block."""
    token, uses = _key.set(key), _uses.set(Counter())
    try:
        yield
    finally:
        _key.reset(token)
        _uses.reset(uses)


@contextlib.contextmanager
def expert(number: Tensor | int) -> Iterator[None]:
    """Dropout inside this block is that of expert `number`; number 0 changes nothing."""
    token = _expert.set(number)
    try:
        yield
    finally:
        _expert.reset(token)


@contextlib.contextmanager
def stack_experts(stacked: bool) -> Iterator[None]:
    """Whether `experts.each_expert` runs all experts in one batched call inside this block."""
    token = _stacked.set(stacked)
    try:
        yield
    finally:
        _stacked.reset(token)


def experts_are_stacked() -> bool:
    """See `stack_experts`."""
    return _stacked.get()


def batch_key() -> Tensor | int:
    """The key of the current batch, the same for all experts.

    Raises:
      NoKeyError: outside `dropout_key`: a random layer was called without a batch.
    """
    key = _key.get()
    if key is None:
        raise NoKeyError("random layers need the batch's key: call the model through Task")
    return key


def current_key() -> Tensor | int:
    """The key of the current batch and expert; raises as `batch_key` does."""
    return batch_key() + _expert.get() * _EXPERT_STRIDE


def earlier_uses(layer: nn.Module) -> int:
    """How often `layer` has asked this before, in the innermost block of `dropout_key`."""
    uses = _uses.get()
    uses[layer] += 1
    return uses[layer] - 1
