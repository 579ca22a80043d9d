"""Counts of the numbers that a client sends or receives."""

from torch import Tensor

from fedlib import tree
from fedlib.engine.parts import Total
from fedlib.tree import Rows, Tree


def each(per_client: Tree, size: int) -> int | float:
    """Count of the numbers of ONE of `size` clients; the mean if clients differ.

    Args:
      per_client: leaves [C, ...], `Rows`, or totals of them.
      size: C.
    """

    def numbers(x: Tensor | Rows | Total) -> int | float:
        if type(x) is Total:
            return tree.numel(x.sum)
        return tree.numel(x) / size if type(x) is Rows else x[0].numel()

    return sum(tree.leaves(tree.map_clients(numbers, per_client)))


def of_chosen(experts: Tree, chosen: Tensor | None) -> int | float:
    """Count of the numbers in a client's `chosen` [C, E] experts [E, ...], mean over the clients.

    Waits for the device, unless `chosen` is None, which means all experts.
    """
    if chosen is None:
        return tree.numel(experts)
    return tree.numel(tree.take(experts, 0)) * int(chosen.sum()) / len(chosen)
