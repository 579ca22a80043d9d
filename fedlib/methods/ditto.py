"""Ditto: every client has its own model, held near the shared one.

    each mini-batch  w_k <- w_k - lr * grad f(w_k)
                     v_k <- v_k - lr * (grad f(v_k) + lam * (v_k - w))
    server           w <- the average of the w_k; v_k never leaves its client

Source: Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021,
Algorithm 1, with FedAvg as the solver of its global objective.
Deviation: both models step on the same mini-batches, so they take equally many steps; in the paper
the numbers may differ. The recorded training loss is the sum of both models' losses.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import LogUniform, Range
from fedlib.methods.two_models import State, TwoModels


@dataclass(frozen=True, kw_only=True)
class Ditto(TwoModels):
    """A shared model, and for each client its own model near it.

    Attributes:
      lam: the paper's lambda, weight of ||v - w||^2 / 2, at least 0; with 0 clients predict as in
        Local.
    """

    lam: float = 1.0

    look = "Ditto", "#4477AA", (4, 0, 45), "dashed"
    ranges: ClassVar = {"lam": Range(0)}
    SPACE: ClassVar = {"lam": LogUniform(1e-2, 10)}

    def loss(self, models: dict[str, Params], received: Params, batch: Batch) -> Tensor:
        """f(w_k) + f(v_k) + lam / 2 ||v_k - w||^2, with constant w -> []"""
        own = models["own"]
        away = tree.sqnorm(tree.sub(self.task.trainable(own), received))
        both = self.task.loss(models["shared"], batch) + self.task.loss(own, batch)
        return both + self.lam / 2 * away

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """Each client's own model."""
        return tree.take(state.models, cohort.ids)
