"""A server with data of its own, and clients with two classes each.

Every class is cut into equal shards, in the order of the data set. The classes are split at random
into two halves; a client gets one shard from each half.

Source: FancyAI-SCNU/FedMoE_IJCAI_2025, a partition that its published settings do not use;
  specification section 4.2.
Deviation: seeded; the two classes of a client always differ.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedlib import streams
from fedlib.data.examples import Examples
from fedlib.data.reserved import Reserved
from fedlib.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ServerTwoClass(Reserved):
    """The owner of each example; for the server's, and the number of clients, see `Reserved`.

    With ten classes the number of clients is a multiple of five, so that every class has the same
    number of shards.
    """

    NAME: ClassVar[str] = "server_two_class"

    def owners(self, pool: Examples, seed: int) -> list[np.ndarray]:
        """Rows of each client -> [C] arrays of int64

        Raises:
          ConfigError: if the classes cannot be halved, if the clients cannot be spread evenly over
            a half, or if a class has fewer examples than shards.
        """
        half, odd = divmod(pool.num_classes, 2)
        if odd or self.num_clients % half:
            raise ConfigError(
                f"{pool.num_classes} classes cannot be dealt in pairs to {self.num_clients} "
                "clients; take an even number of classes and a multiple of half of it"
            )
        draw = streams.generator(seed, self.NAME)
        halves = draw.permutation(pool.num_classes).reshape(2, half)
        hands = [draw.permutation(self._shards(pool, classes)) for classes in halves]
        return [np.concatenate(pair) for pair in zip(*hands, strict=True)]

    def _shards(self, pool: Examples, classes: np.ndarray) -> np.ndarray:
        """All shards of these classes, one for each client -> [C, N]"""
        num = self.num_clients // len(classes)
        size = self.pool_per_class // num
        if not size:
            raise ConfigError(
                f"{self.pool_per_class} examples of a class cannot be cut into {num} shards; "
                "take fewer clients or a larger pool_per_class"
            )
        rows = [np.flatnonzero(pool.y == label)[: num * size] for label in classes]
        return np.concatenate(rows).reshape(self.num_clients, size)
