"""What clients predict with that have an expert of their own beside those of the clusters.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
FL-IJCAI 2022 (arXiv:2206.07832), equations 4 and 5.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from fedlib.engine.task import Params, Task


class Alone(NamedTuple):
    """A client that predicts with its local expert."""

    own: Params


class Ensemble(NamedTuple):
    """A client that trusts all experts alike."""

    experts: Params  # [E, ...], of the clusters
    own: Params


class Mixture(NamedTuple):
    """A client whose gate weighs the experts."""

    experts: Params  # [E, ...], of the clusters
    own: Params
    gate: Params
    members: Tensor  # [E] int64, the clusters whose experts these are


@dataclass(frozen=True)
class ExpertsTask(Task):
    """The clusters' task for cohorts that train models of other tasks along with theirs.

    Attributes:
      others: these tasks.
    """

    others: tuple[Task, ...] = ()

    @cached_property
    def statistics(self) -> frozenset[str]:
        """Names of the running statistics of all models."""
        return super().statistics.union(*(other.statistics for other in self.others))
