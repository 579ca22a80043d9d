"""Clients of equal size that draw the classes of their examples in Dirichlet proportions.

Every example has a single owner: if a class is used up, clients draw from the other classes in
proportion, and the last clients get the remaining examples. Training, validation and test examples
of a client come from the same distribution.

Source: T.-M. H. Hsu, H. Qi, M. Brown, "Measuring the Effects of Non-Identical Data Distribution for
  Federated Visual Classification", 2019 (arXiv:1909.06335), as used in Reisser et al., "Federated
  Mixture of Experts" (FedMix); FedMix's README, section 5.1.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedlib import streams
from fedlib.data import official
from fedlib.data.draws import dirichlet
from fedlib.data.examples import Examples
from fedlib.data.official import Equal, Owners

# Probabilities of the classes, [L], given which of them have examples left, [L] bool.
Shares = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Hsu(Equal):
    """The owner of each example.

    Attributes:
      alpha: sum of the concentrations of all classes, 0.1 for each of ten classes at alpha 1, as in
        the public splits of the source; small is heterogeneous, and the limit 0 is one class per
        client.
    """

    alpha: float

    def owners(self, parts: Examples, seed: int) -> Owners:
        """Rows of each client; see `Official.owners`."""
        draw, num = streams.generator(seed, "hsu", "shares"), parts.num_classes
        shares = (dirichlet(draw, self.alpha / num, num) for _ in range(self.num_clients))
        sizes = self.train_examples, self.test_examples
        return deal(parts, self.num_clients, (partial(among, row) for row in shares), sizes, seed)


def among(shares: np.ndarray, left: np.ndarray) -> np.ndarray:
    """The shares of the things that are `left`, summing to 1; uniform if all are 0 -> [num]

    Args:
      shares: [num], not negative.
      left: [num] bool, not all of them False.
    """
    kept = np.where(left, shares, 0.0)
    total = kept.sum()
    return kept / total if total > 0 else left / left.sum()


def deal(
    parts: Examples, num_clients: int, drawn: Iterable[Shares], sizes: tuple[int, int], seed: int
) -> Owners:
    """Rows of each client: random examples of classes that are drawn one by one.

    The clients' order is random, and the same for both parts: a late client, which gets the
    remaining examples, is late in both.

    Args:
      parts: the data set.
      num_clients: C.
      drawn: for each client, the distribution of its classes; drawn once there is room for all.
      sizes: training and test examples of every client.
      seed: of every draw.

    Raises:
      ConfigError: if there are too few examples.
    """
    of_parts = [*zip(("train", "test"), official.halves(parts), sizes, strict=True)]
    for part, members, size in of_parts:
        official.check_enough(part, len(members), num_clients, size)
    clients = [*drawn]
    order = streams.generator(seed, "hsu", "order").permutation(num_clients)
    owned = []
    for part, members, size in of_parts:
        draw = streams.generator(seed, "hsu", part)
        left = [
            draw.permutation(members[parts.y[members] == label]).tolist()
            for label in range(parts.num_classes)
        ]
        rows = {client: _take(clients[client], left, size, draw) for client in order}
        owned.append([np.array(rows[client], np.int64) for client in range(num_clients)])
    return Owners(*owned)


def _take(shares: Shares, left: list[list[int]], size: int, draw: np.random.Generator) -> list[int]:
    """`size` rows of classes drawn from `shares`; removes them from the rows `left`."""
    taken, bounds = [], None
    for uniform in draw.random(size):
        if bounds is None:
            bounds = np.cumsum(shares(np.array([bool(rows) for rows in left])))
            bounds /= bounds[-1]  # exactly 1 at the end, and above every draw
        rows = left[int(np.searchsorted(bounds, uniform, side="right"))]
        taken.append(rows.pop())
        if not rows:
            bounds = None
    return taken
