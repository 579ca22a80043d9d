"""Clients that draw a superclass, then one of its classes, from their own distributions.

Images are drawn without replacement. A class without images left is removed, and the shares of the
others in its superclass are renormalised; the same holds for a superclass without classes left.

Source: S. Reddi et al., "Adaptive Federated Optimization", ICLR 2021, as used in Reisser et al.,
  "Federated Mixture of Experts" (FedMix); FedMix's README, section 5.2.
Deviation: Reddi et al. test on 100 separate clients. Here the test images are dealt to the training
  clients, by the same distributions.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from fedlib import streams
from fedlib.data.draws import dirichlet
from fedlib.data.examples import Examples
from fedlib.data.official import Equal, Owners
from fedlib.data.partitions import hsu


@dataclass(frozen=True)
class Hierarchical(Equal):
    """The owner of each example.

    Attributes:
      alpha: concentration of each superclass.
      beta: concentration of each class in a superclass.
    """

    needs = ("classes", "coarse", "part")

    alpha: float
    beta: float

    def owners(self, parts: Examples, seed: int) -> Owners:
        """Rows of each client; see `Official.owners`."""
        draw = streams.generator(seed, "hierarchical", "shares")
        members = [np.flatnonzero(parts.coarse == n) for n in range(int(parts.coarse.max()) + 1)]

        def client() -> hsu.Shares:
            shares = dirichlet(draw, self.alpha, len(members))
            fine = [dirichlet(draw, self.beta, len(classes)) for classes in members]
            return partial(_among, shares, fine, members)

        clients = (client() for _ in range(self.num_clients))
        sizes = self.train_examples, self.test_examples
        return hsu.deal(parts, self.num_clients, clients, sizes, seed)


def _among(
    shares: np.ndarray, fine: list[np.ndarray], members: list[np.ndarray], left: np.ndarray
) -> np.ndarray:
    """Probability of each class, 0 unless it is `left` -> [L]

    Args:
      shares: of the superclasses.
      fine: shares of the classes in each superclass.
      members: the classes in each superclass.
      left: [L] bool, whether a class has images left.
    """
    some_left = np.array([left[classes].any() for classes in members])
    probability = np.zeros(len(left))
    coarse = hsu.among(shares, some_left)
    for number in np.flatnonzero(some_left):
        classes = members[number]
        probability[classes] = coarse[number] * hsu.among(fine[number], left[classes])
    return probability
