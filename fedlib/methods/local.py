"""Local: every client trains alone; no communication. pFedMoE's paper calls it Standalone.

    client  trains its own model
    server  none

Source: a reference row of pFedMM's and pFedMoE's tables.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory
from fedlib.methods.parts.own_models import Own
from fedlib.methods.private_models import PrivateModels
from fedlib.tree import Rows


class State(NamedTuple):
    """One model per client."""

    models: Rows  # of all clients
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class Local(PrivateModels):
    """One model per client.

    An unseen client has no default protocol; in "trained", it trains alone for as many rounds as
    the run had.
    """

    look = "Local", "#7A7A7A", "v", "dotted"
    final_protocols: ClassVar = {"seen": {}, "unseen": {"trained": "train_alone"}}

    def init(self, num_clients: int, seed: int) -> State:
        """New models, equal for all clients of the same architecture."""
        models = self.own.init(num_clients, seed)
        return State(models, self.local.memory(self.joint.trainable(models), num_clients))

    def round(self, state: State, cohort: Cohort) -> State:
        """Each client continues to train its own model."""
        trained, memory = self.fit(cohort, tree.take(state.models, cohort.host_ids), state.memory)
        return State(cohort.put(state.models, trained), memory)

    def train_alone(self, state: State, cohort: Cohort) -> Own:
        """Models of clients that did not take part, trained now for `cohort.round` rounds."""
        for number in range(cohort.round):
            state = self.round(state, cohort.in_round(number))
        return self.personalise(state, cohort)
