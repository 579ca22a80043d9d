"""The common base of APFL and Ditto: every client trains a copy of the shared model and its own.

Both models train on the same mini-batches; only the shared one is averaged.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Method


class State(NamedTuple):
    """The server's model, the clients' own models, and the memory of both solvers."""

    params: Params
    models: Params  # leaves [num_clients, ...], private
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class TwoModels(Method):
    """A shared model, and for each client its own model.

    Attributes:
      local: solver of both models.
    """

    shared: ClassVar = ("params",)
    protocols: ClassVar = {"seen": {"default": "personalise"}, "unseen": {"default": "welcome"}}

    def init(self, num_clients: int, seed: int) -> State:
        """The same new model for the server and all clients."""
        params = self.task.init(seed)
        weights = self.task.trainable(params)
        memory = self.local.memory({"shared": weights, "own": weights}, num_clients)
        return State(params, tree.repeat(params, num_clients), memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Both models train on the same mini-batches; the server averages the shared one."""
        received = cohort.broadcast(state.params)
        (sent, own), memory = cohort.fit(
            self.loss,
            {"shared": received, "own": tree.take(state.models, cohort.ids)},
            self.task.trainable(received),
            local=self.local,
            memory=state.memory,
            returns=lambda part, trained: (part.total(trained["shared"]), trained["own"]),
        )
        return State(cohort.average(sent, state.params), cohort.put(state.models, own), memory)

    def loss(self, models: dict[str, Params], received: Params, batch: Batch) -> Tensor:
        """The loss of both models of ONE client, and the constant one that it received -> []"""
        raise NotImplementedError

    def welcome(self, state: State, cohort: Cohort) -> Params:
        """The server's model, for clients without a model."""
        return cohort.broadcast(state.params)
