"""Clients that own a few shards of the data sorted by label.

Source: pFedMM and FedEM (Marfoq et al., NeurIPS 2021), data preparation of the official code;
  pFedMM's README, section 3.5.
Deviation: shuffles with the seeded generator.
"""

import random
from dataclasses import dataclass

import numpy as np

from fedlib.data.draws import as_rows, chunks, subset
from fedlib.data.examples import Examples
from fedlib.data.joined import Joined


@dataclass(frozen=True)
class Pathological(Joined):
    """Every client owns a few shards of the data sorted by label (section 3.5).

    For the fractions see `Joined`.

    Attributes:
      num_clients: C.
      shards_per_client: shards of one client, about its number of classes.
    """

    NEEDS = ("classes",)

    num_clients: int
    shards_per_client: int = 2

    def owners(self, examples: Examples, seed: int) -> list[np.ndarray]:
        """Rows owned by each client, shard by shard -> [C] arrays of int64"""
        draw = random.Random(seed)
        num_shards = self.num_clients * self.shards_per_client
        chosen = subset(draw, len(examples.y), self.fraction, num_shards)
        shards = chunks(sorted(chosen, key=lambda row: examples.y[row]), num_shards)
        draw.shuffle(shards)
        hands = chunks(shards, self.num_clients)
        return as_rows([[row for shard in hand for row in shard] for hand in hands])
