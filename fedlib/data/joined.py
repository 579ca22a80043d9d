"""Partitions that deal a whole data set and then split every client's share.

The official parts of a data set are joined first. The test part of a user's own data is not: the
joined examples are dealt, and a client trains on what it gets of the training part and is tested on
what it gets of the test part.

Source: pFedMM and FedEM (Marfoq et al., NeurIPS 2021), data preparation of the official code;
  pFedMM's specification, section 3.6.
Deviation: clients that would have no training or no test example are dropped, because nothing can
  be measured on them (3.3).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedlib.data.checks import Checked
from fedlib.data.draws import divide, some_are_unseen
from fedlib.data.examples import TEST, Dealt, Examples
from fedlib.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Joined(Checked, ABC):
    """Base class of these partitions.

    Attributes:
      train_fraction: of a client's examples, validation included; the rest is its test part. None
        if the data have a test part of their own, which decides.
      val_fraction: of the training part, 0 for none.
      unseen_fraction: of the clients, 0 for none.
      fraction: used part of the data set, in (0, 1].
    """

    NEEDS: ClassVar[tuple[str, ...]] = ()  # features besides a test part

    train_fraction: float | None = None
    val_fraction: float = 0.0
    unseen_fraction: float = 0.0
    fraction: float = 1.0

    @property
    def needs(self) -> tuple[str, ...]:
        """Features that the data set must have."""
        return (*self.NEEDS, *["own_test"] * (self.train_fraction is None))

    @abstractmethod
    def owners(self, examples: Examples, seed: int) -> list[np.ndarray]:
        """Rows owned by each client, a `fraction` of all -> [C] arrays of int64"""

    def groups(self, examples: Examples, owners: list[np.ndarray], seed: int) -> np.ndarray:
        """The group of each client, seen or unseen -> [C] uint8"""
        return some_are_unseen(len(owners), self.unseen_fraction, seed)

    def deal(self, examples: Examples, seed: int) -> Dealt:
        """The clients; as in the papers, every client is split with the same seed."""
        if examples.own_test and self.train_fraction is not None:
            raise ConfigError(
                "train_fraction must be absent if the data have a test part of their own"
            )
        is_test = examples.part == TEST if examples.own_test else None
        owners = self.owners(examples, seed)
        parts = [self._split(rows, is_test, seed) for rows in owners]
        train, val, test = map(list, zip(*parts, strict=True))
        group = self.groups(examples, owners, seed)
        return Dealt(examples, train, val, test, group).without_the_untestable()

    def _split(
        self, rows: np.ndarray, is_test: np.ndarray | None, seed: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Training, validation and test rows of one client (section 3.6).

        Args:
          is_test: [M] bool, the test part; None to draw one.
        """
        train, test = divide(rows, self.train_fraction or 1, seed)
        if is_test is not None:
            train, test = train[~is_test[train]], train[is_test[train]]
        if not self.val_fraction:
            return train, train[:0], test
        return *divide(train, 1 - self.val_fraction, seed), test
