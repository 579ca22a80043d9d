"""Partitions that deal a whole data set and then split every client's share.

The official parts of a data set are joined first.

Source: pFedMM and FedEM (Marfoq et al., NeurIPS 2021), data preparation of the official code;
  pFedMM's specification, section 3.6.
Deviation: clients that would have no training or no test example are dropped, because nothing can
  be measured on them (3.3).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedlib.data.checks import check_counts, check_fraction
from fedlib.data.draws import divide, some_are_unseen
from fedlib.data.examples import Dealt, Examples


@dataclass(frozen=True, kw_only=True)
class Joined(ABC):
    """Base class of these partitions.

    Attributes:
      train_fraction: of a client's examples, validation included; the rest is its test part.
      val_fraction: of the training part, 0 for none.
      unseen_fraction: of the clients, 0 for none.
      fraction: used part of the data set, in (0, 1].
    """

    COUNTS: ClassVar[tuple[str, ...]] = ("num_clients",)  # fields of at least 1

    train_fraction: float
    val_fraction: float = 0.0
    unseen_fraction: float = 0.0
    fraction: float = 1.0

    def __post_init__(self):
        """Raises ConfigError for an invalid parameter."""
        check_counts(self, *self.COUNTS)
        check_fraction("fraction", self.fraction, one=True)
        check_fraction("train_fraction", self.train_fraction)
        check_fraction("val_fraction", self.val_fraction, zero=True)
        check_fraction("unseen_fraction", self.unseen_fraction, zero=True)

    @abstractmethod
    def owners(self, examples: Examples, seed: int) -> list[np.ndarray]:
        """Rows owned by each client, a `fraction` of all -> [C] arrays of int64"""

    def groups(self, examples: Examples, owners: list[np.ndarray], seed: int) -> np.ndarray:
        """The group of each client, seen or unseen -> [C] uint8"""
        return some_are_unseen(len(owners), self.unseen_fraction, seed)

    def deal(self, examples: Examples, seed: int) -> Dealt:
        """The clients; as in the papers, every client is split with the same seed."""
        owners = self.owners(examples, seed)
        parts = [self._split(rows, seed) for rows in owners]
        train, val, test = map(list, zip(*parts, strict=True))
        group = self.groups(examples, owners, seed)
        return Dealt(examples, train, val, test, group).without_the_untestable()

    def _split(self, rows: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Training, validation and test rows of one client (section 3.6)."""
        train, test = divide(rows, self.train_fraction, seed)
        if not self.val_fraction:
            return train, train[:0], test
        return *divide(train, 1 - self.val_fraction, seed), test
