"""Partitions that keep a data set's official training and test parts.

Clients train on examples of the training part and test on examples of the test part. Randomness
comes from named streams, because the official code is not seeded.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
  FL-IJCAI 2022 (arXiv:2206.07832); EricssonResearch/fl-moe; the README of Adaptive Expert Models,
  section 4. The partitions of FedMix are made in the same way (its README, section 5).
Deviation: seeded (X15), and `val_fraction` holds examples out of a client's training part (X6).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedlib import streams
from fedlib.data.checks import Checked
from fedlib.data.examples import Dealt, Examples
from fedlib.errors import ConfigError
from fedlib.federation import GROUPS


class Owners(NamedTuple):
    """Rows of each client.

    Attributes:
      train: [C] arrays of int64.
      test: [C] arrays of int64.
    """

    train: list[np.ndarray]
    test: list[np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Official(Checked, ABC):
    """Base class of these partitions.

    Attributes:
      val_fraction: of a client's training examples, 0 for none.
      unseen_fraction: of the clients, at random, rounded down; these do not train.
    """

    needs: ClassVar[tuple[str, ...]] = ("classes", "part")

    val_fraction: float = 0.0
    unseen_fraction: float = 0.0

    @abstractmethod
    def owners(self, parts: Examples, seed: int) -> Owners:
        """Rows of each client; `parts` is the data set with its training part first.

        Raises:
          ConfigError: if there are too few examples.
        """

    def deal(self, examples: Examples, seed: int) -> Dealt:
        """The clients."""
        parts = examples.by_part()
        return self.assemble(parts, self.owners(parts, seed), seed)

    def assemble(
        self,
        pool: Examples,
        owners: Owners,
        seed: int,
        *,
        side: np.ndarray | None = None,
        cluster: np.ndarray | None = None,
    ) -> Dealt:
        """The clients with these rows of the pool.

        Args:
          pool: the examples, perhaps changed by the partition.
          owners: rows of the pool.
          seed: of the draws of validation examples and of unseen clients.
          side: [M] of each example, cluster: [C] of each client, see `Federation`.
        """
        kept = [hold_out(rows, self.val_fraction, seed, c) for c, rows in enumerate(owners.train)]
        train, val = map(list, zip(*kept, strict=True))
        group = np.full(len(train), GROUPS.index("seen"), np.uint8)
        order = streams.generator(seed, self.kind, "unseen").permutation(len(group))
        group[order[: int(self.unseen_fraction * len(group) + 1e-9)]] = GROUPS.index("unseen")
        dealt = Dealt(pool, train, val, owners.test, group, side=side, cluster=cluster)
        return dealt.without_the_untestable()


@dataclass(frozen=True)
class Equal(Official):
    """Base class of those whose clients have as many examples each.

    Attributes:
      num_clients: C.
      train_examples, test_examples: of every client, validation included in the former.
    """

    num_clients: int
    train_examples: int
    test_examples: int


def check_square(x: np.ndarray) -> None:
    """Raises ConfigError unless images [N, F, H, W] stay of one size when they are turned."""
    if x.shape[2] != x.shape[3]:
        height, width = x.shape[2:]
        raise ConfigError(f"images must be square to be turned, got {width} x {height} pixels")


def halves(parts: Examples) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the training and of the test part, in this order."""
    return tuple(np.split(np.arange(len(parts.y)), [parts.num_train]))


def hold_out(
    rows: np.ndarray, fraction: float, seed: int, client: int
) -> tuple[np.ndarray, np.ndarray]:
    """A client's rows, split into training rows and a `fraction` of validation rows."""
    num_val = round_half_up(fraction * len(rows))
    order = streams.generator(seed, "val", client).permutation(len(rows))
    return rows[np.sort(order[num_val:])], rows[np.sort(order[:num_val])]


def round_half_up(value: float) -> int:
    """The nearest integer; a half goes up, even if floating point puts it just below."""
    return math.floor(value + 0.5 + 1e-9)


def deal_evenly(
    part: str, rows: np.ndarray, num_clients: int, size: int | None, draw: np.random.Generator
) -> np.ndarray:
    """Rows of a part, in random order -> [num_clients, size] int64

    Args:
      part: "train" or "test", for the error message.
      rows: of the part.
      num_clients: that share the part.
      size: examples of each client; None for as many as possible.
      draw: of the order.

    Raises:
      ConfigError: if there are too few examples.
    """
    size = len(rows) // num_clients if size is None else size
    check_enough(part, len(rows), num_clients, max(size, 1))
    return draw.permutation(rows)[: num_clients * size].reshape(num_clients, size)


def check_enough(part: str, num: int, num_clients: int, size: int) -> None:
    """Raises ConfigError unless the `num` examples of a part suffice for `size` per client."""
    if num_clients * size > num:
        raise ConfigError(
            f"{num} {part} examples cannot be dealt to {num_clients} clients with {size} "
            f"each; take fewer clients or fewer {part}_examples"
        )
