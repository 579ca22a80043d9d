"""Clients with two shards of the examples; all examples of a shard are of one class.

The examples of a class, in the order of the data set, are cut into equal shards; the remainder goes
to the first shards, one example each. A client's two classes, which may be equal, are the same in
training and test.

Source: P. P. Liang et al., "Think Locally, Act Globally: Federated Learning with Local and Global
  Representations", 2020 (arXiv:2001.01523; LG-FedAvg), as used in Reisser et al., "Federated
  Mixture of Experts" (FedMix); FedMix's README, section 5.6.
Deviation: seeded, and `val_fraction` holds examples out of a client's training part.
"""

from dataclasses import dataclass

import numpy as np

from fedlib import streams
from fedlib.data import official
from fedlib.data.checks import check_multiple
from fedlib.data.examples import Examples
from fedlib.data.official import Official, Owners
from fedlib.errors import ConfigError

NUM_CLASSES = 10
SHARDS = 2  # of a client


@dataclass(frozen=True)
class TwoShard(Official):
    """The owner of each example.

    Attributes:
      num_clients: C, a multiple of five, so that all classes have the same number of shards.
      train_examples, test_examples: of every client, even numbers; the first ones of its shards.
        None for whole shards.
    """

    needs = ("classes", "part", "ten_classes")

    num_clients: int
    train_examples: int | None = None
    test_examples: int | None = None

    def __post_init__(self):
        """Raises ConfigError for an invalid parameter."""
        super().__post_init__()
        of, why = NUM_CLASSES // SHARDS, f", as {NUM_CLASSES} classes have as many shards each"
        check_multiple("num_clients", self.num_clients, of, why)
        for name in ("train_examples", "test_examples"):
            check_multiple(name, getattr(self, name), SHARDS)

    def owners(self, parts: Examples, seed: int) -> Owners:
        """Rows of each client.

        Raises:
          ConfigError: if a class has fewer examples than shards.
        """
        num_shards = self.num_clients * SHARDS // NUM_CLASSES
        draw = streams.generator(seed, "two_shard", "labels")
        cards = draw.permutation(np.repeat(np.arange(NUM_CLASSES), num_shards))
        hands = cards.reshape(self.num_clients, SHARDS)
        owned, sizes = [], (self.train_examples, self.test_examples)
        for part, rows, size in zip(("train", "test"), official.halves(parts), sizes, strict=True):
            draw = streams.generator(seed, "two_shard", part)
            left = [
                _shards(part, rows[parts.y[rows] == label], num_shards, draw, size)
                for label in range(NUM_CLASSES)
            ]
            owned.append([np.concatenate([left[label].pop() for label in hand]) for hand in hands])
        return Owners(*owned)


def _shards(
    part: str, rows: np.ndarray, num: int, draw: np.random.Generator, asked: int | None
) -> list[np.ndarray]:
    """The rows of one class in `num` shards in random order, each cut to half of `asked`."""
    if (size := len(rows) // num) < max(1, (asked or 0) // SHARDS):
        raise ConfigError(
            f"a class has {len(rows)} {part} examples, too few for {num} shards; take fewer clients"
        )
    shards = np.split(rows[: num * size], num)
    left_over = rows[num * size :, None]
    shards[: len(left_over)] = map(np.append, shards, left_over)
    kept = None if asked is None else asked // SHARDS
    return [shards[i][:kept] for i in draw.permutation(num)]
