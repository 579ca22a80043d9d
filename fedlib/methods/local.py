"""Local: every client trains alone; no communication. pFedMoE and its siblings say Standalone."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Batch, JointTask, Params, Task
from fedlib.methods.base import Method
from fedlib.methods.parts.own_models import OwnModels
from fedlib.tree import Rows


class State(NamedTuple):
    """One model per client."""

    models: Rows  # of all clients
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class Local(Method):
    """As many models as clients.

    An unseen client has no model of its own, so it has no default protocol; "trained" lets it
    train alone for as many rounds as the others did.

    Attributes:
      local: local solver, run once per round.
      large: the architectures that the clients have in turn; () is `task` for everybody.
    """

    local: Solver
    large: tuple[Task, ...] = ()

    protocols: ClassVar = {"seen": {"default": "personalise"}, "unseen": {}}
    final_protocols: ClassVar = {"seen": {}, "unseen": {"trained": "train_alone"}}

    @cached_property
    def own(self) -> OwnModels:
        """Who has which architecture."""
        return OwnModels.among(self.task, self.large)

    @cached_property
    def joint(self) -> JointTask:
        """Of cohorts in which every architecture is trained."""
        return self.own.joint()

    def init(self, num_clients: int, seed: int) -> State:
        """The same drawn model for everybody who has the same architecture."""
        models = self.own.init(num_clients, seed)
        return State(models, self.local.memory(self.joint.trainable(models), num_clients))

    def round(self, state: State, cohort: Cohort) -> State:
        """Each client goes on from its own model."""
        trained, memory = replace(cohort, task=self.joint).fit(
            self.loss,
            tree.take(state.models, cohort.host_ids),
            self.own.of(cohort),
            local=self.local,
            memory=state.memory,
        )
        return State(cohort.put(state.models, trained), memory)

    def loss(self, model: Params, task: Task, batch: Batch) -> Tensor:
        """Mean loss of ONE client's model -> []"""
        return task.loss(model, batch)

    def personalise(self, state: State, cohort: Cohort) -> dict[str, Any]:
        """Each client's own model."""
        return {
            "model": tree.take(state.models, cohort.host_ids),
            "task": self.own.of(cohort),
        }

    def train_alone(self, state: State, cohort: Cohort) -> dict[str, Any]:
        """The models of clients that did not take part, trained now for `cohort.round` rounds."""
        for number in range(cohort.round):
            state = self.round(state, cohort.in_round(number))
        return self.personalise(state, cohort)

    def predict(self, personal: dict[str, Any], batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        return personal["task"].log_probs(personal["model"], batch)
