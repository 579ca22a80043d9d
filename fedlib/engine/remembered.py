"""What an evaluation has scored already, for when it is asked again.

In an evaluation new clients of a mixture find their weights in several ways, each from the losses
of the same experts on the same examples. Remembered are scores of models that all clients share:
they are the costly ones, and nothing but the scores is kept that would not be there anyway.
"""

import inspect
from collections.abc import Callable, Hashable

from torch import Tensor

from fedlib import tree
from fedlib.tree import Tree


class Remembered:
    """Scores by what was asked; for one evaluation, in which the models stay as they are."""

    def __init__(self):
        self._found: dict[tuple, tuple[tuple[Tree, ...], Tensor]] = {}

    def of(
        self,
        fn: Callable,
        models: tuple[Tree, ...],
        where: tuple[Hashable, ...],
        score: Callable[[], Tensor],
    ) -> Tensor:
        """`score()`, or what it was when the same was asked of the same tensors.

        Args:
          fn: what scores; only a method of an object is known to be the same again.
          models: what it is given, leaves [C, ...].
          where: what else the scores depend on, such as the clients and the split.
        """
        leaves = tree.leaves(models)
        shared = not tree.rows_in(models) and all(map(_is_shared, leaves))
        if not (shared and inspect.ismethod(fn)):
            return score()
        key = fn, *where, *map(_identity, leaves)
        if key not in self._found:
            # With the tensors, so that no others can come to be where they are.
            self._found[key] = models, score()
        return self._found[key][1]


def _is_shared(x: Tensor) -> bool:
    """Whether clients have the same; of a single one that is not seen by its strides."""
    return len(x) == 1 or tree.is_broadcast(x)


def _identity(x: Tensor) -> tuple:
    """Equal for views of the same numbers, as long as nobody writes to them."""
    return x.data_ptr(), x.dtype, x.shape, x.stride(), x._version
