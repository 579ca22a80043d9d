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
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Method, Range
from fedlib.methods.parts.settings import LogUniform


class State(NamedTuple):
    """The server's model, the clients' own models, and the memory of both solvers."""

    params: Params  # w
    models: Params  # v, leaves [num_clients, ...], private
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class Ditto(Method):
    """A shared model, and for each client its own model near it.

    Attributes:
      local: solver of both models.
      lam: the paper's lambda, weight of ||v - w||^2 / 2, at least 0; with 0 clients predict as in
        Local.
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
        """The same new model for the server and all clients."""
        params = self.task.init(seed)
        weights = self.task.trainable(params)
        memory = self.local.memory({"shared": weights, "own": weights}, num_clients)
        return State(params, tree.repeat(params, num_clients), memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Both models train on the same mini-batches; the server averages the shared one."""
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
        """f(w_k) + f(v_k) + lam / 2 ||v_k - w||^2, with constant w -> []"""
        own = models["own"]
        away = tree.sqnorm(tree.sub(self.task.trainable(own), received))
        both = self.task.loss(models["shared"], batch) + self.task.loss(own, batch)
        return both + self.lam / 2 * away

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """Each client's own model."""
        return tree.take(state.models, cohort.ids)

    def welcome(self, state: State, cohort: Cohort) -> Params:
        """The server's model, for clients without a model."""
        return cohort.broadcast(state.params)
