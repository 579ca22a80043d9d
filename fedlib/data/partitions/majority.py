"""Clients with two majority classes, which share a fraction p of their examples equally.

Client i has the classes i // 10 and i % 10, so clients 0, 11, 22, ... have a single one. All
clients take their majority examples first, then the rest at random from the remaining examples of
the other classes: with many clients and a large p the rest has more of the classes 5 to 9.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
  FL-IJCAI 2022 (arXiv:2206.07832); EricssonResearch/fl-moe, its "overlap" mode;
  the README of Adaptive Expert Models, section 4.1.
Deviation: seeded; sizes are rounded instead of cut off; the examples of a single majority class are
  distinct; too few remaining examples are an error, and examples are never shared. Clients that opt
  out of training (X16) are unseen: cohorts are drawn from the other clients, whereas the official
  code draws from all and skips them.
"""

from dataclasses import dataclass

import numpy as np

from fedlib import streams
from fedlib.data.checks import check_multiple
from fedlib.data.examples import Examples
from fedlib.data.official import Equal, Owners, halves, round_half_up
from fedlib.errors import ConfigError

NUM_CLASSES = 10


@dataclass(frozen=True)
class Majority(Equal):
    """The owner of each example; there are at most 100 clients, and even numbers of examples.

    Attributes:
      p: fraction of a client's examples in its majority classes, in [0, 1]. At 0.2 clients are
        almost alike, at 1 they have no other classes.
    """

    needs = ("classes", "part", "ten_classes")

    p: float

    def __post_init__(self):
        """Raises ConfigError for an invalid parameter."""
        super().__post_init__()
        if self.num_clients > NUM_CLASSES**2:
            raise ConfigError(
                f"num_clients must be at most {NUM_CLASSES**2}, one for each pair of classes, "
                f"got {self.num_clients}"
            )
        for name in ("train_examples", "test_examples"):
            check_multiple(name, getattr(self, name), 2)

    def pair(self, client: int) -> tuple[int, int]:
        """The majority classes of a client, which may be equal."""
        return divmod(client, NUM_CLASSES)

    def owners(self, parts: Examples, seed: int) -> Owners:
        """Rows of each client; see `Official.owners`."""
        train, test = halves(parts)
        return Owners(
            [train[own] for own in self._deal("train", parts.y[train], self.train_examples, seed)],
            [test[own] for own in self._deal("test", parts.y[test], self.test_examples, seed)],
        )

    def _deal(self, part: str, labels: np.ndarray, size: int, seed: int) -> list[np.ndarray]:
        """Rows of each client in one part of the data -> [C] arrays of `size` rows"""
        deck = Deck(part, labels, streams.generator(seed, "majority", part))
        half = round_half_up(self.p * size / 2)
        pairs = [self.pair(client) for client in range(self.num_clients)]
        majority = [
            [deck.take(client, half, [a]), deck.take(client, half, [b])]
            for client, (a, b) in enumerate(pairs)
        ]
        others = [
            deck.take(client, size - 2 * half, [c for c in range(NUM_CLASSES) if c not in pair])
            for client, pair in enumerate(pairs)
        ]
        return [np.concatenate([*own, rest]) for own, rest in zip(majority, others, strict=True)]


class Deck:
    """Examples without an owner; `take` removes the examples that it gives."""

    def __init__(self, part: str, labels: np.ndarray, draw: np.random.Generator):
        self.part, self.labels, self.draw = part, labels, draw
        self.left = np.ones(len(labels), bool)

    def take(self, client: int, count: int, classes: list[int]) -> np.ndarray:
        """`count` random examples of these classes -> [count] int64"""
        candidates = np.flatnonzero(self.left & np.isin(self.labels, classes))
        if len(candidates) < count:
            raise ConfigError(
                f"client {client} needs {count} {self.part} examples of the classes {classes}, "
                f"but {len(candidates)} are left; take fewer clients or fewer {self.part}_examples"
            )
        taken = self.draw.choice(candidates, count, replace=False)
        self.left[taken] = False
        return taken
