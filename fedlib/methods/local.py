"""Local: every client trains alone; no communication. pFedMoE's paper calls it Standalone.

    client  trains its own model
    server  none

Source: a reference row of pFedMM's and pFedMoE's tables.
"""

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
    """One model per client.

    An unseen client has no model, so it has no default protocol; in "trained", it trains alone for
    as many rounds as the run had.

    Attributes:
      local: local solver, run once per round.
      large: the architectures that the clients have in turn; () is `task` for all.
    """

    local: Solver
    large: tuple[Task, ...] = ()

    protocols: ClassVar = {"seen": {"default": "personalise"}, "unseen": {}}
    final_protocols: ClassVar = {"seen": {}, "unseen": {"trained": "train_alone"}}

    @cached_property
    def own(self) -> OwnModels:
        """The clients' architectures."""
        return OwnModels.among(self.task, self.large)

    @cached_property
    def joint(self) -> JointTask:
        """The task of cohorts that train all architectures."""
        return self.own.joint()

    def init(self, num_clients: int, seed: int) -> State:
        """New models, equal for all clients of the same architecture."""
        models = self.own.init(num_clients, seed)
        return State(models, self.local.memory(self.joint.trainable(models), num_clients))

    def round(self, state: State, cohort: Cohort) -> State:
        """Each client continues to train its own model."""
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
        """Models of clients that did not take part, trained now for `cohort.round` rounds."""
        for number in range(cohort.round):
            state = self.round(state, cohort.in_round(number))
        return self.personalise(state, cohort)

    def predict(self, personal: dict[str, Any], batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        return personal["task"].log_probs(personal["model"], batch)
