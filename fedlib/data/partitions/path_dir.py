"""Clients with a few classes each; the owners of a class have Dirichlet shares of it.

Classes are dealt as by `path_line`, but owners may share a class very unevenly.

Source: L. Yi et al., "pFedMoE: Data-Level Personalization with Mixture of Experts for
  Model-Heterogeneous Personalized Federated Learning", 2024 (arXiv:2402.01350), as its journal
  version describes the data.
Deviation: neither version states the concentration, or the order of draws.
"""

import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedlib.data.draws import dirichlet, subset
from fedlib.data.examples import Examples
from fedlib.data.joined import Joined
from fedlib.data.partitions.path_line import hand_out, hands


@dataclass(frozen=True)
class PathDir(Joined):
    """Each client's classes, and its share of each; for the fractions see `Joined`.

    Attributes:
      num_clients: C.
      classes_per_client: classes of each client, different ones while any are left; C times this is
        a multiple of the number of classes.
      alpha: concentration; small is heterogeneous.
    """

    NEEDS: ClassVar[tuple[str, ...]] = ("classes",)

    num_clients: int
    classes_per_client: int
    alpha: float

    def owners(self, examples: Examples, seed: int) -> list[np.ndarray]:
        """Rows owned by each client, class by class, perhaps none -> [C] arrays of int64"""
        dealt = hands(
            np.random.RandomState(seed),
            self.num_clients,
            examples.num_classes,
            self.classes_per_client,
            lambda draw, num_owners: dirichlet(draw, self.alpha, num_owners),
        )
        chosen = subset(random.Random(seed), len(examples.y), self.fraction, self.num_clients)
        return hand_out(dealt, examples, np.array(chosen))
