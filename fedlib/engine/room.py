"""If a GPU runs out of memory, fewer clients and examples are computed at a time."""

from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


def halving(fn: Callable[[int], T], size: int) -> T:
    """`fn(size)`; without room for that, `fn` of half the size, and so on."""
    while True:
        try:
            return fn(size)
        except torch.OutOfMemoryError:
            if size == 1:
                raise
        give_back()  # not before the error is gone, which holds what was computed
        size = -(-size // 2)


def give_back() -> None:
    """Have PyTorch give memory that it keeps for later to the device."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
