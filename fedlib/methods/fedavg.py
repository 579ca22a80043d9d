"""FedAvg: average locally trained models.

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
    """The server's model, and what the clients' solvers remember."""

    params: Params
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class FedAvg(Method):
    """One model for everybody.

    Attributes:
      local: local solver, run once per round.
    """

    local: Solver

    protocols: ClassVar = {**Method.protocols, "server": {"default": "personalise"}}
    shared: ClassVar = ("params",)

    def init(self, num_clients: int, seed: int) -> State:
        """The drawn model; nothing remembered."""
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
        """The server's model, for clients seen and unseen, and on the server's own data."""
        return cohort.broadcast(state.params)

    def server_parameters(self, state: State) -> int:
        """The server's model, without its running statistics."""
        return tree.numel(self.task.trainable(state.params))
