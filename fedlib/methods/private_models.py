"""The common base of methods whose clients keep whole models, of one or several architectures."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, JointTask, Params, Task
from fedlib.methods.base import Method
from fedlib.methods.parts.own_models import Own, OwnModels, put_parts
from fedlib.tree import Tree


@dataclass(frozen=True, kw_only=True)
class PrivateModels(Method):
    """Clients with their own models.

    The state's `models` are `Rows` of whole models. An unseen client has no model, so there is no
    protocol for it.

    Attributes:
      task: the architecture of all clients, if `large` is empty.
      local: local solver, run once per round.
      large: the architectures that the clients have in turn; () is `task` for all.
    """

    large: tuple[Task, ...] = ()

    classifiers: ClassVar = frozenset({"large"})
    protocols: ClassVar = {"seen": {"default": "personalise"}, "unseen": {}}

    @cached_property
    def own(self) -> OwnModels:
        """The clients' architectures."""
        return OwnModels.among(self.task, self.large)

    @cached_property
    def joint(self) -> JointTask:
        """The task of cohorts that train all architectures."""
        return self.own.joint()

    def loss(self, model: Params, task: Task, batch: Batch) -> Tensor:
        """Mean loss of ONE client's model -> []"""
        return task.loss(model, batch)

    def fit(
        self, cohort: Cohort, start: Tree, memory: Memory, *further: Tree
    ) -> tuple[Tree, Memory]:
        """(the models after local training from `start`, the solvers' memory).

        Args:
          further: arguments of `loss` after the task, for each client.
        """
        return replace(cohort, task=self.joint).fit(
            self.loss, start, self.own.of(cohort), *further, local=self.local, memory=memory
        )

    def personalise(self, state: Any, cohort: Cohort) -> Own:
        """Each client's own model."""
        return self.own.predictors(state.models, cohort)

    def with_header(
        self, header: Params, state: Any, cohort: Cohort, where: np.ndarray | None = None
    ) -> Own:
        """Each client's own model with the server's `header`; with `where` [C], only for these."""
        model, task = self.own.predictors(state.models, cohort)
        return Own(put_parts(model, cohort.held(header), where), task)

    def outputs(self, personal: Own, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        return personal.task.log_probs(personal.model, batch)
