"""Local: every client trains alone; no communication."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Params
from fedlib.methods.base import Method


class State(NamedTuple):
    """One model per client, leaves [num_clients, ...]."""

    models: Params
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class Local(Method):
    """As many models as clients.

    An unseen client has no model of its own, so it has no default protocol; "trained" lets it
    train alone for as many rounds as the others did.

    Attributes:
      local: local solver, run once per round.
    """

    local: Solver

    protocols: ClassVar = {"seen": {"default": "personalise"}, "unseen": {}}
    final_protocols: ClassVar = {"seen": {}, "unseen": {"trained": "train_alone"}}

    def init(self, num_clients: int, seed: int) -> State:
        """The same drawn model for everybody."""
        params = self.task.init(seed)
        memory = self.local.memory(self.task.trainable(params), num_clients)
        return State(tree.repeat(params, num_clients), memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Each client goes on from its own model."""
        trained, memory = cohort.fit(
            self.task.loss,
            tree.take(state.models, cohort.ids),
            local=self.local,
            memory=state.memory,
        )
        return State(tree.put(state.models, cohort.ids, trained), memory)

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """Each client's own model."""
        return tree.take(state.models, cohort.ids)

    def train_alone(self, state: State, cohort: Cohort) -> Params:
        """The models of clients that did not take part, trained now for `cohort.round` rounds."""
        for number in range(cohort.round):
            state = self.round(state, cohort.in_round(number))
        return self.personalise(state, cohort)
