"""A server with data of its own, and clients of equal size with Dirichlet proportions of classes.

Each client draws its proportions, then the class of each example; a class that is used up leaves
its share to the others (`fedlib.data.partitions.hsu`). The more examples the pool has besides the
clients', the closer the last clients, in random order, come to their proportions.

Source: J. Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
  IJCAI 2025 (Fed-MoE), CIFAR-10; Fed-MoE's README, section 0. The paper states the distribution
  and the size of a client; this way to reconcile them is ours.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from fedlib import streams
from fedlib.data.draws import dirichlet
from fedlib.data.examples import Examples
from fedlib.data.partitions import hsu
from fedlib.data.reserved import Reserved


@dataclass(frozen=True, kw_only=True)
class ServerEqual(Reserved):
    """The owner of each example; for the server's see `Reserved`.

    Attributes:
      train_examples: of every client.
      alpha: concentration for each class; small is heterogeneous.
    """

    train_examples: int
    alpha: float = 1.0

    def owners(self, pool: Examples, seed: int) -> list[np.ndarray]:
        """Rows of each client; see `Reserved.owners`."""
        draw = streams.generator(seed, self.kind, "shares")
        shares = (dirichlet(draw, self.alpha, pool.num_classes) for _ in range(self.num_clients))
        clients = (partial(hsu.among, row) for row in shares)
        return hsu.deal(pool, self.num_clients, clients, (self.train_examples, 0), seed).train
