"""Ditto: every client has a model of its own, held near the shared one.

    each mini-batch  w_k <- w_k - lr * grad f(w_k)
                     v_k <- v_k - lr * (grad f(v_k) + lam * (v_k - w))
    server           w <- the average of the w_k; v_k never leaves its client

Source: Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021,
Algorithm 1, with FedAvg as the solver of its global objective.
Deviation: both models take their steps on the same mini-batches, so a client does as many for its
own model as for the shared one; the paper lets them differ. The training loss that is recorded is
the sum of both models' losses.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Method, Range
from fedlib.methods.parts.settings import LogUniform


class State(NamedTuple):
    """The server's model, the clients' own, and what the solvers of both remember."""

    params: Params  # w
    models: Params  # v, leaves [num_clients, ...], private
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class Ditto(Method):
    """One model for everybody, and one near it for each client.

    Attributes:
      local: solver of both models.
      lam: weight of ||v - w||^2 / 2; 0 predicts with the models of Local.
    """

    local: Solver
    lam: float = 1.0

    ranges: ClassVar = {"lam": Range(0)}
    SPACE: ClassVar = {"lam": LogUniform(1e-2, 10)}
    shared: ClassVar = ("params",)
    protocols: ClassVar = {
        "seen": {"default": "personalise"},
        "unseen": {"default": "welcome"},
    }

    def init(self, num_clients: int, seed: int) -> State:
        """The same drawn model, for the server and for everybody."""
        params = self.task.init(seed)
        weights = self.task.trainable(params)
        memory = self.local.memory({"shared": weights, "own": weights}, num_clients)
        return State(params, tree.repeat(params, num_clients), memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Both models step on the same mini-batches, then the average of the shared one."""
        received = cohort.broadcast(state.params)
        start = {"shared": received, "own": tree.take(state.models, cohort.ids)}
        (sent, own), memory = cohort.fit(
            self.loss,
            start,
            self.task.trainable(received),
            local=self.local,
            memory=state.memory,
            returns=lambda part, trained: (part.total(trained["shared"]), trained["own"]),
        )
        models = cohort.put(state.models, own)
        return State(cohort.average(sent, state.params), models, memory)

    def loss(self, models: dict[str, Params], received: Params, batch: Batch) -> Tensor:
        """f(w_k) + f(v_k) + lam / 2 ||v_k - w||^2, of which w is held fixed -> []"""
        own = models["own"]
        away = tree.sqnorm(tree.sub(self.task.trainable(own), received))
        both = self.task.loss(models["shared"], batch) + self.task.loss(own, batch)
        return both + self.lam / 2 * away

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """Each client's own model."""
        return tree.take(state.models, cohort.ids)

    def welcome(self, state: State, cohort: Cohort) -> Params:
        """The server's model: a new client has none of its own."""
        return cohort.broadcast(state.params)
