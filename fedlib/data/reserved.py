"""Partitions whose server owns examples of every class; the clients share others.

The training examples of a class are cut in the order of the data set. The clients share the first
ones, then come the probe's, then the server's validation examples; the server trains on the last
ones. So the clients' data do not depend on the size of the server's. The server tests on the
official test part, or on its first examples of each class. The clients have no personalised models,
and no test examples; they may have validation examples, by which a run is tuned.

Source: J. Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
  IJCAI 2025 (Fed-MoE), and the data preparation of its code; Fed-MoE's README, sections 0 and 4.2.
Deviation: every example has a single owner; in the code, clients also own validation and probe
  examples. The paper draws what it reserves uniformly from all data; here it is the
  last examples of each class, equally many, as in the code of CIFAR-10.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedlib.data.checks import Checked
from fedlib.data.examples import Dealt, Examples
from fedlib.data.official import hold_out, round_half_up
from fedlib.errors import ConfigError
from fedlib.federation import GROUPS


@dataclass(frozen=True, kw_only=True)
class Reserved(Checked, ABC):
    """Base class of these partitions.

    Attributes:
      num_clients: C.
      pool_per_class: examples of each class that the clients share.
      server_per_class: training examples of the server per class.
      val_per_class: validation examples of the server per class; 0 for none.
      probe_per_class: examples of the probe per class; 0 for no probe: models are then measured
        with the server's training examples, as in the paper.
      test_per_class: test examples of the server per class; None for the official test part.
      majority: share of class 0 among the server's training examples and among the probe's, whose
        totals stay the same; None for equal classes.
      val_fraction: of a client's training examples, 0 for none.
    """

    needs: ClassVar[tuple[str, ...]] = ("classes", "part")

    num_clients: int
    pool_per_class: int
    server_per_class: int
    val_per_class: int = 0
    probe_per_class: int = 0
    test_per_class: int | None = None
    majority: float | None = None
    val_fraction: float = 0.0

    @abstractmethod
    def owners(self, pool: Examples, seed: int) -> list[np.ndarray]:
        """Rows of each client in the `pool` that the clients share -> [C] arrays of int64

        Raises:
          ConfigError: if there are too few examples.
        """

    def deal(self, examples: Examples, seed: int) -> Dealt:
        """The clients, then the server, then the probe if there is one.

        Raises:
          ConfigError: if a class has too few examples.
        """
        parts = examples.by_part()
        pool, probe, val, train = self._sections(parts)
        owners = enumerate(self.owners(parts.take(pool), seed))
        cut = [hold_out(pool[own], self.val_fraction, seed, client) for client, own in owners]
        clients, held = map(list, zip(*cut, strict=True))
        server = train, val, self._test(parts)
        return assemble(parts, clients, server, probe if self.probe_per_class else None, held)

    def _sections(self, parts: Examples) -> list[np.ndarray]:
        """Training rows of clients, probe, and for the server to validate and train, ascending."""
        labels, num = parts.y[: parts.num_train], parts.num_classes
        probe = self._counts(self.probe_per_class, num)
        server = self._counts(self.server_per_class, num)
        of_classes = []
        for label in range(num):
            sizes = self.pool_per_class, probe[label], self.val_per_class, server[label]
            of_classes.append(self._cut(label, np.flatnonzero(labels == label), sizes))
        return [np.sort(np.concatenate(rows)) for rows in zip(*of_classes, strict=True)]

    def _test(self, parts: Examples) -> np.ndarray:
        """Test rows of the server, in ascending order."""
        rows = np.arange(parts.num_train, len(parts.y))
        if self.test_per_class is None:
            return rows
        of_classes = [rows[parts.y[rows] == label] for label in range(parts.num_classes)]
        if self.test_per_class > (fewest := min(map(len, of_classes))):
            raise ConfigError(
                f"test_per_class is {self.test_per_class}, but a class has {fewest} test examples"
            )
        return np.sort(np.concatenate([own[: self.test_per_class] for own in of_classes]))

    def _counts(self, per_class: int, num_classes: int) -> list[int]:
        """Numbers of reserved examples of each class, `per_class` on average."""
        if self.majority is None:
            return [per_class] * num_classes
        most = round_half_up(self.majority * per_class * num_classes)
        rest, more = divmod(per_class * num_classes - most, num_classes - 1)
        return [most, *(rest + (place < more) for place in range(num_classes - 1))]

    def _cut(self, label: int, rows: np.ndarray, sizes: tuple[int, ...]) -> list[np.ndarray]:
        """The rows of one class in parts of these sizes; rows before the last part may be left."""
        if sum(sizes) > len(rows):
            pool, probe, val, server = sizes
            raise ConfigError(
                f"class {label} has {len(rows)} training examples, but {sum(sizes)} are asked for: "
                f"{pool} for the clients, {probe} for the probe, {val} to validate on and {server} "
                "for the server to train on"
            )
        ends = np.cumsum(sizes[:3])
        return [*np.split(rows[: ends[-1]], ends[:2]), rows[len(rows) - sizes[-1] :]]


def assemble(
    pool: Examples,
    clients: list[np.ndarray],
    server: tuple[np.ndarray, np.ndarray, np.ndarray],
    probe: np.ndarray | None,
    held: list[np.ndarray] | None = None,
) -> Dealt:
    """Clients without test examples, then the server, then the probe if there is one.

    Args:
      pool: the examples.
      clients: training rows of each; clients without rows are dropped.
      server: its training, validation and test rows.
      probe: its rows; None for no probe.
      held: validation rows of each client; None for none.
    """
    nothing = [server[0][:0]] * len(clients)
    owners = [*zip(clients, held or nothing, nothing, strict=True), server]
    groups = ["seen"] * len(clients) + ["server"]
    if probe is not None:
        owners.append((probe, probe[:0], probe[:0]))
        groups.append("probe")
    group = np.array([GROUPS.index(name) for name in groups], np.uint8)
    return Dealt(pool, *map(list, zip(*owners, strict=True)), group).without_the_untestable()
