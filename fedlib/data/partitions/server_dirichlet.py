"""A server with data of its own, and clients with Dirichlet shares of every class.

A class is cut, in the order of the data set, at the cumulative shares, rounded down. So clients
have different sizes.

Source: FancyAI-SCNU/FedMoE_IJCAI_2025, its data preparation for CIFAR-10, generator and order of
  draws included; Fed-MoE's README, section 4.2.
"""

from dataclasses import dataclass

import numpy as np

from fedlib.data.draws import dirichlet
from fedlib.data.examples import Examples
from fedlib.data.reserved import Reserved


@dataclass(frozen=True, kw_only=True)
class ServerDirichlet(Reserved):
    """The owner of each example; for the server's see `Reserved`.

    Attributes:
      alpha: concentration for each client; small is heterogeneous. Clients without examples are
        dropped.
    """

    alpha: float = 1.0

    def owners(self, pool: Examples, seed: int) -> list[np.ndarray]:
        """Rows of each client; some may own none -> [C] arrays of int64"""
        draw, pieces = np.random.RandomState(seed), []
        for label in range(pool.num_classes):
            rows = np.flatnonzero(pool.y == label)
            shares = dirichlet(draw, self.alpha, self.num_clients)
            pieces.append(np.split(rows, (np.cumsum(shares)[:-1] * len(rows)).astype(int)))
        return [np.concatenate(own) for own in zip(*pieces, strict=True)]
