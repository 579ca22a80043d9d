"""A cache of scores for one evaluation.

New clients of a mixture compute their weights in several ways, each from the losses of the same
experts on the same examples. Only scores of models that all clients share are cached: they are the
expensive ones, and their models stay in memory anyway.
"""

import inspect
from collections.abc import Callable, Hashable

from torch import Tensor

from fedlib import tree
from fedlib.tree import Tree


class Remembered:
    """The cached scores of one evaluation, in which the models do not change."""

    def __init__(self):
        self._found: dict[tuple, tuple[tuple[Tree, ...], Tensor]] = {}

    def of(
        self,
        fn: Callable,
        models: tuple[Tree, ...],
        where: tuple[Hashable, ...],
        score: Callable[[], Tensor],
    ) -> Tensor:
        """`score()`, or its cached value for the same arguments and tensors.

        Args:
          fn: function that scores; the cache recognises bound methods only.
          models: arguments of `fn`, leaves [C, ...].
          where: everything else that the scores depend on, such as the clients and the split.
        """
        leaves = tree.leaves(models)
        shared = not tree.rows_in(models) and all(map(_is_shared, leaves))
        if not (shared and inspect.ismethod(fn)):
            return score()
        key = fn, *where, *map(_identity, leaves)
        if key not in self._found:
            # The cache keeps the tensors, too, so that no others get their addresses.
            self._found[key] = models, score()
        return self._found[key][1]


def _is_shared(x: Tensor) -> bool:
    """Whether all clients share the tensor; for a single client strides cannot show it."""
    return len(x) == 1 or tree.is_broadcast(x)


def _identity(x: Tensor) -> tuple:
    """A key that is equal for views of the same numbers, until they are written to."""
    return x.data_ptr(), x.dtype, x.shape, x.stride(), x._version
