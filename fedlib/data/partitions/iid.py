"""Clients with equal, random shares of the data.

Source: pFedMM and FedEM (Marfoq et al., NeurIPS 2021), data preparation of the official code;
  pFedMM's README, section 3.2.
"""

import random
from dataclasses import dataclass

import numpy as np

from fedlib.data.draws import as_rows, chunks, subset
from fedlib.data.examples import Examples
from fedlib.data.joined import Joined


@dataclass(frozen=True)
class Iid(Joined):
    """Every client owns an equal, random share of the data.

    For the fractions see `Joined`.

    Attributes:
      num_clients: C.
    """

    num_clients: int

    def owners(self, examples: Examples, seed: int) -> list[np.ndarray]:
        """Rows owned by each client; sizes differ by at most one -> [C] arrays of int64"""
        rows = subset(random.Random(seed), len(examples.y), self.fraction, self.num_clients)
        return as_rows(chunks(rows, self.num_clients))
