"""Clients with a few classes each; the owners of a class have Dirichlet shares of it.

Classes are dealt as by `path_line`, but owners may share a class very unevenly.

Source: L. Yi et al., "pFedMoE: Data-Level Personalization with Mixture of Experts for
  Model-Heterogeneous Personalized Federated Learning", 2024 (arXiv:2402.01350), as its journal
  version describes the data.
Deviation: neither version states the concentration, or the order of draws.
"""

from dataclasses import dataclass

import numpy as np

from fedlib.data.draws import dirichlet
from fedlib.data.partitions.path_line import PathLine


@dataclass(frozen=True)
class PathDir(PathLine):
    """Each client's classes, as of `PathLine`, and its share of each, perhaps none.

    Attributes:
      alpha: concentration; small is heterogeneous.
    """

    alpha: float

    def shares(self, draw: np.random.RandomState, num_owners: int) -> np.ndarray:
        """Shares of a class, summing to 1 -> [num_owners]"""
        return dirichlet(draw, self.alpha, num_owners)
