"""FedAvg: the server averages locally trained models.

    client  w_k <- local training from w
    server  w <- sum_k (n_k / n) w_k

Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Params
from fedlib.methods.base import Method


class State(NamedTuple):
    """The server's model, and the memory of the clients' solvers."""

    params: Params
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class FedAvg(Method):
    """One model for all clients.

    Attributes:
      local: local solver, run once per round.
    """

    local: Solver

    look = "FedAvg", "#000000", "o", "solid"
    protocols: ClassVar = {**Method.protocols, "server": {"default": "personalise"}}
    shared: ClassVar = ("params",)

    def init(self, num_clients: int, seed: int) -> State:
        """A new model; the solvers' memory is empty."""
        params = self.task.init(seed)
        return State(params, self.local.memory(self.task.trainable(params), num_clients))

    def round(self, state: State, cohort: Cohort) -> State:
        """Broadcast, train locally, average by number of examples."""
        sent, memory = cohort.fit(
            self.task.loss,
            cohort.broadcast(state.params),
            local=self.local,
            memory=state.memory,
            returns=Cohort.total,
        )
        return State(cohort.average(sent, state.params), memory)

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The server's model, for seen and unseen clients and for the server."""
        return cohort.broadcast(state.params)

    def server_parameters(self, state: State) -> int:
        """Parameters of the server's model, without running statistics."""
        return tree.numel(self.task.trainable(state.params))
