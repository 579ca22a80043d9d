"""What methods have in common whose clients keep whole models and exchange something by class."""

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
    """A client that predicts with its model."""

    model: Rows
    task: Rows


@dataclass(frozen=True, kw_only=True)
class ClassStatistics(Curves):
    """Clients with models of their own, of one architecture or of several.

    The state's `models` are `Rows` of whole models. A new client has none, so it has no protocol.

    Attributes:
      task: the architecture of all clients, if `large` is empty.
      local: local solver, run once per round.
      large: the architectures that clients have in turn, client k number k modulo their number.
    """

    local: Solver
    large: tuple[Task, ...] = ()

    ways: ClassVar = {"seen": {"default": "personalise"}, "unseen": {}}

    @cached_property
    def own(self) -> OwnModels:
        """Who has which architecture."""
        return OwnModels.among(self.task, self.large)

    @cached_property
    def joint(self) -> JointTask:
        """The task of cohorts of clients with any of these."""
        return self.own.joint()

    @cached_property
    def num_logits(self) -> int:
        """Outputs of every model."""
        return class_means.num_logits(self.own.tasks)

    @property
    def num_classes(self) -> int:
        """L; a single output is that of class 1 of two."""
        return max(self.num_logits, 2)

    def personalise(self, state: Any, cohort: Cohort) -> Classifier:
        """Each client's own model."""
        return Classifier(tree.take(state.models, cohort.host_ids), self.own.of(cohort))

    def predict(self, personal: Classifier, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        return personal.task.log_probs(personal.model, batch)


def represent(model: Params, task: Task, batch: Batch) -> Tensor:
    """r(x), what the header of ONE client's model is fed with -> [B, F]"""
    return task.features(task.split(model)[0], batch)
