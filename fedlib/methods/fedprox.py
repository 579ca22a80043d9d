"""FedProx: FedAvg with a proximal term that holds clients near the broadcast model.

    client  minimises f_k(w_k) + mu / 2 ||w_k - w||^2, from w
    server  averages, as FedAvg

Source: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Batch, Params
from fedlib.methods.fedavg import FedAvg, State
from fedlib.methods.parts.settings import LogUniform, Range


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """FedAvg with a proximal term.

    Attributes:
      mu: weight of ||w_k - w||^2 / 2, at least 0; 0 is FedAvg. pFedMM's scripts have 0.1, and 1 on
        CIFAR-10.
    """

    mu: float

    look = "FedProx", "#999933", "s", "dashed"
    ranges: ClassVar = {"mu": Range(0)}
    SPACE: ClassVar = {"mu": LogUniform(1e-3, 1)}

    def round(self, state: State, cohort: Cohort) -> State:
        """As FedAvg, with the proximal objective."""
        anchor = cohort.held(self.task.trainable(state.params))
        return self.minimise(self.loss, state, cohort, anchor)

    def loss(self, params: Params, anchor: Params, batch: Batch) -> Tensor:
        """The client's loss plus the proximal term -> []"""
        away = tree.sub(self.task.trainable(params), anchor)
        return self.task.loss(params, batch) + self.mu / 2 * tree.sqnorm(away)
