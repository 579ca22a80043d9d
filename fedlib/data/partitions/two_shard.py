"""Clients with two shards of the examples, each shard being of one class.

The examples of a class, in the order of the data set, are cut into equal shards; what is left over
is appended to the first of them, one each. A client's two classes, which may be one and the same,
hold for its training and its test examples.

Source: P. P. Liang et al., "Think Locally, Act Globally: Federated Learning with Local and Global
  Representations", 2020 (arXiv:2001.01523; LG-FedAvg), as used in Reisser et al., "Federated
  Mixture of Experts" (FedMix); specification section 5.6.
Deviation: seeded, and `val_fraction` holds examples out of a client's training part.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedlib import streams
from fedlib.data.checks import check_count
from fedlib.data.examples import Examples
from fedlib.data.official import Official, Owners
from fedlib.errors import ConfigError

NUM_CLASSES = 10
SHARDS = 2  # of a client


@dataclass(frozen=True)
class TwoShard(Official):
    """Who owns which example.

    Attributes:
      num_clients: C, a multiple of five: there are as many shards of each class.
    """

    NAME: ClassVar[str] = "two_shard"
    needs: ClassVar[tuple[str, ...]] = ("classes", "part", "ten_classes")

    num_clients: int

    def __post_init__(self):
        """Raises ConfigError for a parameter that makes no sense."""
        super().__post_init__()
        check_count("num_clients", self.num_clients)
        if self.num_clients * SHARDS % NUM_CLASSES:
            raise ConfigError(
                f"num_clients must be a multiple of {NUM_CLASSES // SHARDS}, so that the "
                f"{NUM_CLASSES} classes have as many shards each, got {self.num_clients}"
            )

    def owners(self, parts: Examples, seed: int) -> Owners:
        """Rows of each client.

        Raises:
          ConfigError: if a class has fewer examples than shards.
        """
        num_shards = self.num_clients * SHARDS // NUM_CLASSES
        draw = streams.generator(seed, "two_shard", "labels")
        hands = draw.permutation(np.repeat(np.arange(NUM_CLASSES), num_shards))
        owned = []
        for part, labels in zip(
            ("train", "test"), np.split(parts.y, [parts.num_train]), strict=True
        ):
            draw = streams.generator(seed, "two_shard", part)
            left = [
                _shards(part, np.flatnonzero(labels == label), num_shards, draw)
                for label in range(NUM_CLASSES)
            ]
            start = 0 if part == "train" else parts.num_train
            owned.append(
                [
                    start + np.concatenate([left[label].pop() for label in hand])
                    for hand in hands.reshape(self.num_clients, SHARDS)
                ]
            )
        return Owners(*owned)


def _shards(part: str, rows: np.ndarray, num: int, draw: np.random.Generator) -> list[np.ndarray]:
    """The rows of one class in `num` shards, these in random order."""
    size = len(rows) // num
    if size < 1:
        raise ConfigError(
            f"{len(rows)} {part} examples of a class cannot be cut into {num} shards; "
            "take fewer clients"
        )
    shards = np.split(rows[: num * size], num)
    left_over = rows[num * size :, None]
    shards[: len(left_over)] = map(np.append, shards, left_over)
    return [shards[i] for i in draw.permutation(num)]
