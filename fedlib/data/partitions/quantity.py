"""Clients that differ only in the amount of their data.

A client's number of training examples is drawn from a log-normal distribution and clipped; the
examples are drawn regardless of class. All clients have the same number of test examples.

Source: ours. Q. Li et al., "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE
  2022 (arXiv:2102.02079), section 4.3, have the same skew with sizes in Dirichlet proportions.
"""

from dataclasses import dataclass

import numpy as np

from fedlib import streams
from fedlib.data import official
from fedlib.data.examples import Examples
from fedlib.data.official import Equal, Owners
from fedlib.errors import ConfigError


@dataclass(frozen=True)
class Quantity(Equal):
    """The owner of each example; `train_examples` is the median over clients.

    Attributes:
      sigma: standard deviation of the logarithm of a client's number of training examples.
      min_examples, max_examples: limits to which draws are clipped.
    """

    needs = ("part",)

    sigma: float
    min_examples: int
    max_examples: int

    def __post_init__(self):
        """Raises ConfigError for an invalid parameter."""
        super().__post_init__()
        if self.max_examples < self.min_examples:
            least = f"min_examples, {self.min_examples}"
            raise ConfigError(f"max_examples must be at least {least}, got {self.max_examples}")

    def owners(self, parts: Examples, seed: int) -> Owners:
        """Rows of each client; see `Official.owners`."""
        sizes = self.sizes(seed)
        of_train, of_test = official.halves(parts)
        if sizes.sum() > len(of_train):
            raise ConfigError(
                f"{len(of_train)} train examples cannot be dealt to {self.num_clients} clients who "
                f"have {sizes.sum()} together; take fewer clients or fewer train_examples"
            )
        order = streams.generator(seed, "quantity", "train").permutation(of_train)
        train = np.split(order[: sizes.sum()], np.cumsum(sizes)[:-1])
        draw = streams.generator(seed, "quantity", "test")
        test = official.deal_evenly("test", of_test, self.num_clients, self.test_examples, draw)
        return Owners(train, list(test))

    def sizes(self, seed: int) -> np.ndarray:
        """Training examples of each client -> [C] int64"""
        draw = streams.generator(seed, "quantity", "sizes")
        sizes = self.train_examples * np.exp(self.sigma * draw.standard_normal(self.num_clients))
        return np.clip(np.rint(sizes), self.min_examples, self.max_examples).astype(np.int64)
