"""Clients that are writers, with their official training and test examples.

Source: Reisser et al., "Federated Mixture of Experts" (FedMix); FedMix's README, section 5.3.
"""

from dataclasses import dataclass

import numpy as np

from fedlib import streams
from fedlib.data.draws import check_enough_writers
from fedlib.data.examples import TEST, TRAIN, Dealt, Examples
from fedlib.data.official import Official, Owners
from fedlib.errors import DataError


@dataclass(frozen=True)
class WriterParts(Official):
    """One client per writer with both training and test examples.

    Attributes:
      num_clients: number of random writers; None for all, also in random order.
    """

    needs = ("owner", "part")

    num_clients: int | None = None

    def deal(self, examples: Examples, seed: int) -> Dealt:
        """The clients; the pool has their training examples first, in the order of the clients."""
        owners = self.owners(examples, seed)
        rows = [*owners.train, *owners.test]
        pool, num = examples.take(np.concatenate(rows)), len(owners.train)
        places = np.split(np.arange(len(pool.y)), np.cumsum([*map(len, rows)])[:-1])
        return self.assemble(pool, Owners(places[:num], places[num:]), seed)

    def owners(self, parts: Examples, seed: int) -> Owners:
        """Rows of each client.

        Raises:
          DataError: if there are too few writers.
        """
        train, test = parts.of_owner(TRAIN), parts.of_owner(TEST)
        writers = [w for w in range(parts.num_owners) if len(train[w]) and len(test[w])]
        if not writers:
            raise DataError("no writer has both training and test examples")
        check_enough_writers(self.num_clients, len(writers))
        order = streams.generator(seed, "writers").permutation(len(writers))
        chosen = [writers[i] for i in order[: self.num_clients]]
        return Owners([train[w] for w in chosen], [test[w] for w in chosen])
