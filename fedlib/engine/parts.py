"""Training of a cohort part by part, so that only the models of one part exist at a time.

A part leaves a row for each client, or is added to a `Total`. Totals are summed client by client,
in the cohort's order, so every bit is the same for any size of a part, unless a part reads its own.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.device import jobs_per_gpu, upload
from fedlib.tree import Rows, Tree

# Of the models of a part, without momenta. On a CPU they should fit into its cache and into memory
# that the process already has. A GPU computes all clients of a part at once, so parts are large.
PART_BYTES = {"cpu": 16 * 2**20, "cuda": 4 * 2**30}
# Of small models that are added up together: a CPU's cache has room for them, and on a GPU every
# model added by itself would be a launch for each of its tensors.
SUMMED_BYTES = {"cpu": 2**20, "cuda": 2**28}


class Total:
    """A weighted sum over clients; that of `Cohort.total` weights them by training examples.

    Attributes:
      weight: of all these clients together: the number of their examples.
    """

    def __init__(self, terms: Tree, weights: np.ndarray):
        """The sum of `terms`, leaves [C, ...] or `Rows`, with `weights` [C].

        Raises:
          ValueError: for `Rows` of different shapes, which have no sum.
        """
        tree.check_alike(terms, len(weights))
        self.weight = weights.sum().item()
        self._terms, self._weights = terms, weights  # of clients that are not in the sum yet
        self._sum: Tree = None  # computed when needed: a part in a larger total needs none
        self._at_once = max(1, _limit(SUMMED_BYTES, terms) // max(1, _nbytes(tree.take(terms, 0))))

    @property
    def sum(self) -> Tree:
        """The sum -> leaves [...]"""
        self._add(len(self._weights))
        return self._sum

    def mean(self) -> Tree:
        """Weighted average over clients -> leaves [...]"""
        return self.over(self.weight)

    def over(self, examples: float) -> Tree:
        """The sum divided by a number of examples, such as those of all clients -> leaves [...]"""
        return tree.map(lambda x: x / examples, self.sum)

    def add_up(self) -> "Total":
        """This total after adding up its terms, except for the last few of small models -> self"""
        self._add(len(self._weights) // self._at_once * self._at_once)
        self._terms = tree.clone(self._terms)
        return self

    def extend(self, others: "Total") -> "Total":
        """Add the terms of further clients, in place -> self, added up"""
        self.weight += others.weight
        if others._sum is not None:  # it was read, as by `Cohort.collect`
            self._add(0)  # makes the sum
            tree.map(Tensor.add_, self._sum, others._sum)
        left = [x._terms for x in (self, others) if len(x._weights)] or [self._terms]
        self._terms = tree.concatenate([*map(tree.together, left)]) if left[1:] else left[0]
        self._weights = np.concatenate([self._weights, others._weights])
        return self.add_up()

    def _add(self, count: int) -> None:
        """Add the first `count` of the remaining terms to the sum."""
        if self._sum is None:
            self._sum = tree.map(torch.zeros_like, tree.take(self._terms, 0))
        into = tree.leaves(self._sum)
        for first in range(0, count if into else 0, self._at_once):
            block = slice(first, min(first + self._at_once, count))
            given = self._weights[block]
            if not given.any():
                continue
            if len(given) == 1:
                own = tree.leaves(tree.take(self._terms, first))
                torch._foreach_add_(into, own, alpha=float(given[0]))
                continue
            terms = tree.leaves(tree.together(tree.take(self._terms, block)))
            weights = upload(given.astype(np.float64), terms[0].device)
            for total, x in zip(into, terms, strict=True):
                total += (tree.along(weights.to(x.dtype), x) * x).sum(0)
        self._terms = tree.take(self._terms, slice(count, None))
        self._weights = self._weights[count:]


def numbers_of_all(sent: Tree, size: int) -> int:
    """Count of the numbers that all `size` clients send or get.

    Args:
      sent: leaves [C, ...], `Rows`, or totals of them.
      size: C.
    """

    def numbers(x: Tensor | Rows | Total) -> int:
        return size * tree.numel(x.sum) if type(x) is Total else tree.numel(x)

    return sum(tree.leaves(tree.map_clients(numbers, sent)))


def numbers_of_experts(experts: Tree, chosen: Tensor | None, size: int) -> int:
    """Count of the numbers in the `chosen` [C, E] experts [E, ...] of all `size` clients.

    Waits for the device, unless `chosen` is None, which means all experts.
    """
    if chosen is None:
        return size * tree.numel(experts)
    return tree.numel(tree.take(experts, 0)) * int(chosen.sum())


def refuse_others(values: Tree, size: int, but: type | tuple = ()) -> None:
    """Raise ValueError unless `values` have a row for each of the `size` clients of a cohort.

    Args:
      but: types of what else there may be among them, which is not checked.
    """

    def check(x: object) -> None:
        if isinstance(x, but):
            return
        rows = len(x) if isinstance(x, Rows) or (isinstance(x, Tensor) and x.dim()) else 0
        if rows != size:
            one = f"has {rows} rows" if isinstance(x, Rows | Tensor) else f"is {x!r:.80}"
            raise ValueError(
                f"values of clients must be tensors [C, ...] or Rows; one {one} for a cohort of "
                f"{size} clients; give theirs: tree.take(state.x, cohort.ids), part.ids in "
                "`returns`, cohort.held(shared), or the first of cohort.fit's two values"
            )

    tree.map_clients(check, values)


def slices(models: Tree, size: int, together: int) -> list[slice]:
    """The parts of a cohort of `size` clients, in order.

    Args:
      models: of the clients, leaves [C, ...] or `Rows`.
      size: C.
      together: least number of clients in a part, to keep the executor busy.
    """
    number = max(_limit(PART_BYTES, models) * size // max(1, _nbytes(models)), together)
    return [slice(first, min(first + number, size)) for first in range(0, size, number)]


def join_parts(parts: Iterable[tuple[slice, Tree]], size: int) -> Tree:
    """The results of all parts, joined to the result of all `size` clients.

    Args:
      parts: slice and result of each part: leaves [K, ...] for its K clients, `Rows` or totals.

    Raises:
      ValueError: for other results, which cannot be joined, also if there is one part.
    """
    whole: Tree = None
    for cut, kept in parts:
        refuse_others(kept, cut.stop - cut.start, but=Total)
        if cut == slice(0, size):
            return kept
        if whole is None:
            whole = tree.map_clients(partial(_room_for, size=size), kept)
        whole = tree.map_clients(partial(_with_part, cut), whole, kept)
        del kept  # frees memory before the next part trains
    return whole


def _room_for(x: Tensor | Rows | Total, size: int) -> Tensor | Rows | None:
    """What the results of all parts go into, from the first one; None for a total."""
    if type(x) is Total:
        return None
    return Rows() if type(x) is Rows else x.new_empty(size, *x.shape[1:])


def _with_part(
    cut: slice, x: Tensor | Rows | Total | None, more: Tensor | Rows | Total
) -> Tensor | Rows | Total:
    """`x` with the result `more` of the clients `cut`; see `_room_for`."""
    if type(more) is Total:
        return more.add_up() if x is None else x.extend(more)
    if type(more) is Rows:
        return Rows((*x, *more))
    x[cut] = more
    return x


def _limit(limits: dict[str, int], values: Tree) -> int:
    """The limit for the device on which `values` are."""
    on_cpu = all(x.device.type == "cpu" for x in tree.leaves(values))
    return limits["cpu"] if on_cpu else limits["cuda"] // jobs_per_gpu()


def _nbytes(values: Tree) -> int:
    return sum(x.nbytes for x in tree.leaves(values))
