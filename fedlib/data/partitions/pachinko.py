"""Clients that draw coarse labels, and classes within them, by Dirichlet shares.

Source: pFedMM and FedEM (Marfoq et al., NeurIPS 2021), data preparation of the official code;
  pFedMM's README, section 3.4.
"""

import random
from dataclasses import dataclass

import numpy as np

from fedlib.data.draws import as_rows, dirichlet, subset
from fedlib.data.examples import Examples
from fedlib.data.joined import Joined


@dataclass(frozen=True)
class Pachinko(Joined):
    """Equal clients that draw coarse labels, then classes, in Dirichlet shares (section 3.4).

    For the fractions see `Joined`.

    Attributes:
      num_clients: C.
      alpha: concentration over coarse labels.
      beta: concentration over the classes of one coarse label.
    """

    NEEDS = ("classes", "coarse")

    num_clients: int
    alpha: float
    beta: float

    def owners(self, examples: Examples, seed: int) -> list[np.ndarray]:
        """Rows owned by each client, all of one size -> [C] arrays of int64"""
        draw, numpy_draw = random.Random(seed), np.random.RandomState(seed)
        left = [[] for _ in range(len(examples.coarse))]  # rows of each class without an owner
        chosen = subset(draw, len(examples.y), self.fraction, self.num_clients)
        for row in chosen:
            left[int(examples.y[row])].append(row)
        tree = [
            [int(fine) for fine in np.flatnonzero(examples.coarse == coarse) if left[fine]]
            for coarse in range(int(examples.coarse.max()) + 1)
        ]
        tree = [fines for fines in tree if fines]
        given = tree, left, len(chosen) // self.num_clients, draw, numpy_draw
        return as_rows([self._client(*given) for _ in range(self.num_clients)])

    def _client(
        self,
        tree: list[list[int]],
        left: list[list[int]],
        size: int,
        draw: random.Random,
        numpy_draw: np.random.RandomState,
    ) -> list[int]:
        """One client's rows; removes them from `left`, and used-up classes from `tree`."""
        coarse_shares = dirichlet(numpy_draw, self.alpha, len(tree))
        fine_shares = [dirichlet(numpy_draw, self.beta, len(fines)) for fines in tree]
        taken = []
        for _ in range(size):
            coarse = int(numpy_draw.multinomial(1, coarse_shares).argmax())
            fine = int(numpy_draw.multinomial(1, fine_shares[coarse]).argmax())
            rows = left[tree[coarse][fine]]
            row = draw.choice(rows)
            rows.remove(row)
            taken.append(row)
            if not rows:
                del tree[coarse][fine]
                fine_shares[coarse] = _without(fine_shares[coarse], fine)
            if not tree[coarse]:
                del tree[coarse], fine_shares[coarse]
                coarse_shares = _without(coarse_shares, coarse)
        return taken


def _without(shares: np.ndarray, index: int) -> np.ndarray:
    """The shares without the one at `index`, summing to 1; uniform if only zeros are left."""
    left = np.delete(shares, index)
    total = left.sum()
    return left / total if total > 0 else np.full(len(left), 1 / max(1, len(left)))
