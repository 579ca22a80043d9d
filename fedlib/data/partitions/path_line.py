"""Clients with a few classes each; the owners of a class have about equal shares of it.

Every class has the same number of owners, whose shares are uniform draws from a narrow interval. A
client takes its classes one by one, at random among the classes that lack the most owners.

Source: L. Yi et al., "pFedMoE: Data-Level Personalization with Mixture of Experts for
  Model-Heterogeneous Personalized Federated Learning", 2024 (arXiv:2402.01350), whose sibling
  papers publish the procedure; the order of draws from NumPy's legacy generator is theirs.
Deviation: a client that would get a class twice draws again, unless it has all that are left; the
  published procedure does not, which makes no difference where the number of classes is a multiple
  of a client's. As there, examples that rounding leaves over have no owner.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedlib.data.draws import subset
from fedlib.data.examples import Examples
from fedlib.data.joined import Joined
from fedlib.errors import ConfigError

LOW, HIGH = 0.4, 0.6  # shares of a class are uniform draws from this interval, divided by their sum

Hand = list[tuple[int, float]]  # classes of a client, and its share of each


@dataclass(frozen=True)
class PathLine(Joined):
    """Each client's classes, and its share of each; for the fractions see `Joined`.

    Attributes:
      num_clients: C.
      classes_per_client: of each client; C times this is a multiple of the number of classes.
    """

    NEEDS = ("classes",)

    num_clients: int
    classes_per_client: int

    def owners(self, examples: Examples, seed: int) -> list[np.ndarray]:
        """Rows owned by each client, class by class -> [C] arrays of int64"""
        dealt = self._hands(np.random.RandomState(seed), examples.num_classes)
        chosen = subset(random.Random(seed), len(examples.y), self.fraction, self.num_clients)
        return hand_out(dealt, examples, np.array(chosen))

    def shares(self, draw: np.random.RandomState, num_owners: int) -> np.ndarray:
        """Shares of a class, summing to 1 -> [num_owners]"""
        shares = draw.uniform(LOW, HIGH, num_owners)
        return shares / shares.sum()

    def _hands(self, draw: np.random.RandomState, num_classes: int) -> list[Hand]:
        """Classes and shares of each client; the last share of a class is taken first -> [C] lists

        Raises:
          ConfigError: if the classes cannot have equally many owners.
        """
        num_clients, per_client = self.num_clients, self.classes_per_client
        num_owners, left_over = divmod(num_clients * per_client, num_classes)
        if left_over or per_client > num_classes:
            raise ConfigError(
                f"num_clients * classes_per_client must be a multiple of the {num_classes} classes "
                f"and classes_per_client at most that, got {num_clients} * {per_client}"
            )
        of_class = [self.shares(draw, num_owners) for _ in range(num_classes)]
        missing = np.full(num_classes, num_owners)
        dealt = []
        for _ in range(num_clients):
            held: Hand = []
            for _ in range(per_client):
                label = _most_missing(draw, missing, [label for label, _ in held])
                missing[label] -= 1
                held.append((label, float(of_class[label][missing[label]])))
            dealt.append(held)
        return dealt


def _most_missing(draw: np.random.RandomState, missing: np.ndarray, held: list[int]) -> int:
    """A random one of the classes that lack the most owners."""
    label = int(draw.choice(np.flatnonzero(missing == missing.max())))
    others = missing.copy()
    others[held] = 0
    if label in held and others.any():
        label = int(draw.choice(np.flatnonzero(others == others.max())))
    return label


def hand_out(dealt: Sequence[Hand], examples: Examples, rows: np.ndarray) -> list[np.ndarray]:
    """The share of each client in these rows, each class dealt in the order of the rows.

    Args:
      dealt: classes and shares of each client.
      rows: in random order.

    Returns:
      [C] arrays of int64; floor(share * n) of the n rows of a class.
    """
    members = [rows[examples.y[rows] == label] for label in range(examples.num_classes)]
    at = [0] * len(members)
    owned = []
    for hand in dealt:
        own = []
        for label, share in hand:
            start, size = at[label], int(share * len(members[label]))
            at[label] = start + size
            own.append(members[label][start : start + size])
        owned.append(np.concatenate(own))
    return owned
