"""FedAvg: the server averages locally trained models.

    client  w_k <- local training from w
    server  w <- sum_k (n_k / n) w_k

Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, Algorithm 1.
Deviation: clients may keep momenta between rounds, as FedEM's do; with `keeps="round"` of the
solver they do not. Absent clients have no weight unless the run's `aggregation` is "damped".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.methods.one_model import OneModel
from fedlib.methods.one_model import State as State
from fedlib.tree import Tree


@dataclass(frozen=True, kw_only=True)
class FedAvg(OneModel):
    """One model for all clients, the average of what they train."""

    look = "FedAvg", "#000000", "o", "solid"
    protocols: ClassVar = {**OneModel.protocols, "server": {"default": "personalise"}}
    shared: ClassVar = ("params",)

    def round(self, state: State, cohort: Cohort) -> State:
        """Broadcast, train locally, average by number of examples."""
        return self.minimise(self.task.loss, state, cohort)

    def minimise(self, loss: Callable, state: State, cohort: Cohort, *per_client: Tree) -> State:
        """State after a round in which clients minimise `loss(params, *per_client, batch)`."""
        start = cohort.broadcast(state.params)
        sent, memory = cohort.fit(
            loss, start, *per_client, local=self.local, memory=state.memory, returns=Cohort.total
        )
        return State(cohort.average(sent, state.params), memory)

    def server_parameters(self, state: State) -> int:
        """Parameters of the server's model, without running statistics."""
        return tree.numel(self.task.trainable(state.params))
