"""Partitions whose server owns a part of every class, while the clients share another part.

Of the training examples of a class, in the order of the data set, the clients share the first ones;
the probe's come next, then those that the server validates on, and last those that it trains on. So
the clients' data do not depend on the size of the server's. The server tests on the official test
part, or the first examples of each class there, and the clients, who are not personalised, test on
nothing.

Source: J. Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
  IJCAI 2025 (Fed-MoE), and the data preparation of its code; specification sections 0 and 4.2.
Deviation: nobody shares an example, where clients of the code own validation and probe examples
  too; the paper does not say which examples it reserves.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedlib.data.checks import check_count, check_fraction
from fedlib.data.examples import Dealt, Examples
from fedlib.data.official import round_half_up
from fedlib.errors import ConfigError
from fedlib.federation import GROUPS


class Sections(NamedTuple):
    """Rows by what they are for, in ascending order.

    Attributes:
      pool: what the clients share.
      probe: what models are measured with.
      val: what the server validates on.
      server: what it trains on.
    """

    pool: np.ndarray
    probe: np.ndarray
    val: np.ndarray
    server: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Reserved(ABC):
    """What these partitions have in common.

    Attributes:
      num_clients: C.
      pool_per_class: examples of each class that the clients share.
      server_per_class: examples of each class that the server trains on.
      val_per_class: that it validates on; 0 for none.
      probe_per_class: that models are measured with; 0 for no probe, if the server's training
        examples serve for that too, as in the paper.
      test_per_class: that it tests on; None for all of the official test part.
      majority: share of one class among the server's training examples, and among the probe's,
        whose numbers stay the same; None has all classes alike.
      majority_class: which class that is.
    """

    NAME: ClassVar[str]  # of the partition's random streams
    needs: ClassVar[tuple[str, ...]] = ("classes", "part")

    num_clients: int
    pool_per_class: int
    server_per_class: int
    val_per_class: int = 0
    probe_per_class: int = 0
    test_per_class: int | None = None
    majority: float | None = None
    majority_class: int = 0

    def __post_init__(self):
        """Raises ConfigError for a parameter that makes no sense."""
        for name in ("num_clients", "pool_per_class", "server_per_class"):
            check_count(name, getattr(self, name))
        for name in ("val_per_class", "probe_per_class", "majority_class"):
            check_count(name, getattr(self, name), least=0)
        if self.test_per_class is not None:
            check_count("test_per_class", self.test_per_class)
        if self.majority is not None:
            check_fraction("majority", self.majority, one=True)

    @abstractmethod
    def owners(self, pool: Examples, seed: int) -> list[np.ndarray]:
        """Rows of the clients' `pool` that each owns, class by class -> [C] arrays of int64

        Raises:
          ConfigError: if there are too few examples.
        """

    def deal(self, examples: Examples, seed: int) -> Dealt:
        """The clients, then the server, then the probe if there is one.

        Raises:
          ConfigError: if a class has too few examples.
        """
        parts = examples.by_part()
        rows = self._sections(parts)
        clients = [rows.pool[own] for own in self.owners(parts.take(rows.pool), seed)]
        test = self._test(parts)
        probe = rows.probe if self.probe_per_class else None
        return dealt(parts, clients, (rows.server, rows.val, test), probe)

    def _sections(self, parts: Examples) -> Sections:
        """Training rows by what they are for, each in ascending order."""
        labels, num = parts.y[: parts.num_train], parts.num_classes
        probe, server = (
            self._counts(each, num) for each in (self.probe_per_class, self.server_per_class)
        )
        of_classes = [
            self._cut(
                label,
                np.flatnonzero(labels == label),
                (self.pool_per_class, probe[label], self.val_per_class, server[label]),
            )
            for label in range(num)
        ]
        return Sections(*(np.sort(np.concatenate(rows)) for rows in zip(*of_classes, strict=True)))

    def _test(self, parts: Examples) -> np.ndarray:
        """Rows that the server tests on, in ascending order."""
        rows = np.arange(parts.num_train, len(parts.y))
        if self.test_per_class is None:
            return rows
        of_classes = [rows[parts.y[rows] == label] for label in range(parts.num_classes)]
        fewest = min(map(len, of_classes))
        if self.test_per_class > fewest:
            raise ConfigError(
                f"test_per_class is {self.test_per_class}, but a class has {fewest} test examples"
            )
        return np.sort(np.concatenate([own[: self.test_per_class] for own in of_classes]))

    def _counts(self, per_class: int, num_classes: int) -> list[int]:
        """Reserved examples of each class, `per_class` on average."""
        if self.majority is None:
            return [per_class] * num_classes
        check_majority_class(self.majority_class, num_classes)
        most = round_half_up(self.majority * per_class * num_classes)
        rest, more = divmod(per_class * num_classes - most, num_classes - 1)
        counts = [rest + (place < more) for place in range(num_classes - 1)]
        return [*counts[: self.majority_class], most, *counts[self.majority_class :]]

    def _cut(self, label: int, rows: np.ndarray, sizes: tuple[int, ...]) -> list[np.ndarray]:
        """The rows of one class in parts of these sizes; between the last two some may be left."""
        if sum(sizes) > len(rows):
            pool, probe, val, server = sizes
            raise ConfigError(
                f"class {label} has {len(rows)} training examples, but {sum(sizes)} are asked for: "
                f"{pool} for the clients, {probe} for the probe, {val} to validate on and {server} "
                "for the server to train on"
            )
        ends = np.cumsum(sizes[:3])
        return [*np.split(rows[: ends[-1]], ends[:2]), rows[len(rows) - sizes[-1] :]]


def check_majority_class(label: int, num_classes: int) -> None:
    """Raise ConfigError unless the data set has the class that most reserved examples are of."""
    if label >= num_classes:
        raise ConfigError(f"majority_class must be below {num_classes}, got {label}")


def dealt(
    pool: Examples,
    clients: list[np.ndarray],
    server: tuple[np.ndarray, np.ndarray, np.ndarray],
    probe: np.ndarray | None,
) -> Dealt:
    """Clients that only train, then the server, then the probe if there is one.

    Args:
      pool: the examples.
      clients: rows of each; who has none is dropped.
      server: rows that it trains, validates and tests on.
      probe: its rows.
    """
    groups = ["seen"] * len(clients) + ["server"]
    parts = [[*clients], *([server[0][:0]] * len(clients) for _ in range(2))]
    for rows, own in zip(parts, server, strict=True):
        rows.append(own)
    if probe is not None:
        groups.append("probe")
        for rows, own in zip(parts, (probe, probe[:0], probe[:0]), strict=True):
            rows.append(own)
    group = np.array([GROUPS.index(name) for name in groups], np.uint8)
    return Dealt(pool, *parts, group).without_the_untestable()
