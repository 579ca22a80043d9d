"""Natural clients of the data set, each with all its examples.

Source: FedEM (Marfoq et al., NeurIPS 2021), FEMNIST of the official code; pFedMM's specification,
  section 3.8.
"""

from dataclasses import dataclass

import numpy as np

from fedlib.data.draws import check_enough_writers, draw_some, last_are_unseen, some_are_unseen
from fedlib.data.examples import TEST, Examples
from fedlib.data.joined import Joined
from fedlib.errors import ConfigError, DataError


@dataclass(frozen=True)
class Writer(Joined):
    """One client per writer, the natural partition (section 3.8).

    For the fractions see `Joined`; `fraction` is of the writers, in random order.

    Attributes:
      min_examples: writers with fewer are left out (3: "writers with <= 2 images dropped").
      num_clients: exact number of writers, unseen ones included; None for all.
      unseen: choice of the unseen clients: "drawn" at random, "last" in the random order, or
        "test_part" for those with an example in the official test part.
    """

    min_examples: int = 3
    num_clients: int | None = None
    unseen: str = "drawn"

    def __post_init__(self):
        """Raises ConfigError for an invalid parameter."""
        super().__post_init__()
        if self.unseen == "test_part" and self.unseen_fraction:
            raise ConfigError(
                f"unseen 'test_part' needs unseen_fraction 0, got {self.unseen_fraction}"
            )

    @property
    def needs(self) -> tuple[str, ...]:
        """Features that the data set must have."""
        return (*super().needs, "owner", *["part"] * (self.unseen == "test_part"))

    def owners(self, examples: Examples, seed: int) -> list[np.ndarray]:
        """Rows of each of a random `fraction` of the writers -> [C] arrays of int64

        Raises:
          DataError: if there are fewer writers than clients, or the fraction is none of them.
        """
        rows = [own for own in examples.of_owner() if len(own) >= self.min_examples]
        if not (chosen := draw_some(rows, self.fraction, seed)):
            told = f"fraction is {self.fraction}, which is none of the {len(rows)} writers that"
            raise DataError(f"{told} have enough examples: min_examples is {self.min_examples}")
        check_enough_writers(self.num_clients, len(chosen))
        return chosen[: self.num_clients]

    def groups(self, examples: Examples, owners: list[np.ndarray], seed: int) -> np.ndarray:
        """Group of each client, seen or unseen -> [C] uint8"""
        if self.unseen == "test_part":
            return np.array([np.any(examples.part[rows] == TEST) for rows in owners], np.uint8)
        if self.unseen == "last":
            return last_are_unseen(len(owners), self.unseen_fraction)
        return some_are_unseen(len(owners), self.unseen_fraction, seed)
