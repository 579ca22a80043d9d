"""CIFAR-100 whose clients draw a superclass, then a class of it, from distributions of their own.

Every draw is of an image that nobody has yet. A class without images left is removed, and the
shares of the others of its superclass are renormalised; so is a superclass without classes left.

Source: S. Reddi et al., "Adaptive Federated Optimization", ICLR 2021, as used in Reisser et al.,
  "Federated Mixture of Experts" (FedMix); specification section 5.2. The raw files are those of
  `fedlib.data.cifar100`.
Deviation: Reddi et al. test with 100 clients of their own. Here the test images are dealt to those
  who train, by the same distributions.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedlib import streams
from fedlib.data import cifar100, hsu, official
from fedlib.data.cifar100 import NUM_CLASSES, sources
from fedlib.data.official import Owners, Parts
from fedlib.data.partition import check_count, check_positive, dirichlet
from fedlib.federation import Federation

__all__ = ["NUM_CLASSES", "Hierarchical", "build", "sources"]


@dataclass(frozen=True)
class Hierarchical:
    """Who owns which example.

    Attributes:
      num_clients: C.
      alpha: concentration of each superclass.
      beta: concentration of each class of a superclass.
      train_examples, test_examples: of every client.
    """

    num_clients: int
    alpha: float
    beta: float
    train_examples: int
    test_examples: int

    def __post_init__(self):
        """Raises ConfigError for a parameter that makes no sense."""
        for name in ("alpha", "beta"):
            check_positive(name, getattr(self, name))
        for name in ("num_clients", "train_examples", "test_examples"):
            check_count(name, getattr(self, name))

    def owners(self, parts: Parts, coarse: np.ndarray, seed: int) -> Owners:
        """Rows of each client, given the superclass of each class [L].

        Raises:
          ConfigError: if there are too few examples.
        """
        draw = streams.generator(seed, "hierarchical", "shares")
        members = [np.flatnonzero(coarse == label) for label in range(int(coarse.max()) + 1)]
        clients = []
        for _ in range(self.num_clients):
            shares = dirichlet(draw, self.alpha, len(members))
            fine = [dirichlet(draw, self.beta, len(classes)) for classes in members]
            clients.append(partial(_among, shares, fine, members))
        return hsu.deal(parts, clients, (self.train_examples, self.test_examples), seed)


def _among(
    shares: np.ndarray, fine: list[np.ndarray], members: list[np.ndarray], left: np.ndarray
) -> np.ndarray:
    """How probable each class is that is `left` -> [L]

    Args:
      shares: of the superclasses.
      fine: of the classes of each superclass, among them.
      members: the classes of each superclass.
      left: [L] bool.
    """
    some_left = np.array([left[classes].any() for classes in members])
    probability = np.zeros(len(left))
    for share, own, classes, some in zip(
        hsu.among(shares, some_left), fine, members, some_left, strict=True
    ):
        if some:
            probability[classes] = share * hsu.among(own, left[classes])
    return probability


def build(
    raw: Path,
    *,
    seed: int,
    num_clients: int = 500,
    alpha: float = 0.1,
    beta: float = 10.0,
    train_examples: int = 100,
    test_examples: int = 20,
    val_fraction: float = 0.0,
) -> Federation:
    """The federation, from the raw files below `raw`; with the defaults all images are used.

    Args:
      raw: folder of raw files.
      seed: of every draw.
      num_clients: C.
      alpha: concentration of each of the 20 superclasses.
      beta: concentration of each of the five classes of a superclass.
      train_examples, test_examples: of each client, validation included in the former.
      val_fraction: of a client's training examples; FedMix mentions none.

    Raises:
      ConfigError: for a value that makes no sense.
      DataError: if a raw file is missing or not the official one.
    """
    partition = Hierarchical(num_clients, alpha, beta, train_examples, test_examples)
    official.check_draws(val_fraction, seed)
    train, test = cifar100.read(raw)
    x, y, coarse = (np.concatenate(part) for part in zip(train, test, strict=True))
    parts = Parts(x, y, len(train[1]), NUM_CLASSES, cifar100.MEAN, cifar100.STD)
    owners = partition.owners(parts, cifar100.hierarchy(y, coarse), seed)
    return official.federation(parts, owners, val_fraction=val_fraction, seed=seed)
