"""The common base of methods whose clients keep whole models and exchange class means."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Solver
from fedlib.engine.task import Batch, JointTask, Params, Task
from fedlib.methods.base import Curves
from fedlib.methods.parts import class_means
from fedlib.methods.parts.own_models import OwnModels
from fedlib.tree import Rows


class Classifier(NamedTuple):
    """A client that predicts with its own model."""

    model: Rows
    task: Rows


@dataclass(frozen=True, kw_only=True)
class ClassStatistics(Curves):
    """Clients with their own models, of one or several architectures.

    The state's `models` are `Rows` of whole models. An unseen client has no model, so there is no
    protocol for it.

    Attributes:
      task: the architecture of all clients, if `large` is empty.
      local: local solver, run once per round.
      large: the architectures that the clients have in turn; () is `task` for all.
    """

    local: Solver
    large: tuple[Task, ...] = ()

    ways: ClassVar = {"seen": {"default": "personalise"}, "unseen": {}}

    @cached_property
    def own(self) -> OwnModels:
        """The clients' architectures."""
        return OwnModels.among(self.task, self.large)

    @cached_property
    def joint(self) -> JointTask:
        """The task of cohorts that train all architectures."""
        return self.own.joint()

    @cached_property
    def num_logits(self) -> int:
        """Number of outputs of every model."""
        return class_means.num_logits(self.own.tasks)

    @property
    def num_classes(self) -> int:
        """L; a single output means two classes."""
        return max(self.num_logits, 2)

    def personalise(self, state: Any, cohort: Cohort) -> Classifier:
        """Each client's own model."""
        return Classifier(tree.take(state.models, cohort.host_ids), self.own.of(cohort))

    def predict(self, personal: Classifier, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        return personal.task.log_probs(personal.model, batch)


def represent(model: Params, task: Task, batch: Batch) -> Tensor:
    """r(x), the input of the header of ONE client's model -> [B, F]"""
    return task.features(task.split(model)[0], batch)
