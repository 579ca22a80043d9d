"""How many numbers a client sends or is sent."""

from torch import Tensor

from fedlib import tree
from fedlib.engine.parts import Total
from fedlib.tree import Rows, Tree


def each(per_client: Tree, size: int) -> int | float:
    """Numbers in what ONE of `size` clients has; the mean where clients differ in it.

    Args:
      per_client: leaves [C, ...], `Rows`, or totals of such.
      size: C.
    """

    def numbers(x: Tensor | Rows | Total) -> int | float:
        if type(x) is Total:
            return tree.numel(x.sum)
        return tree.numel(x) / size if type(x) is Rows else x[0].numel()

    return sum(tree.leaves(tree.map_clients(numbers, per_client)))


def of_chosen(experts: Tree, chosen: Tensor | None) -> int | float:
    """Numbers in the `chosen` [C, E] of the experts [E, ...], on average over the clients.

    Waits for the device, unless `chosen` is None, which is all of them.
    """
    if chosen is None:
        return tree.numel(experts)
    return tree.numel(tree.take(experts, 0)) * int(chosen.sum()) / len(chosen)
