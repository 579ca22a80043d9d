"""The common base of methods whose clients keep whole models and exchange class means."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Batch, Params, Task
from fedlib.methods.parts import class_means
from fedlib.methods.private_models import PrivateModels
from fedlib.tree import Rows


@dataclass(frozen=True, kw_only=True)
class ClassStatistics(PrivateModels):
    """Clients with their own models, which classify alike."""

    @cached_property
    def num_logits(self) -> int:
        """Number of outputs of every model."""
        return class_means.common("outputs", [x.num_outputs for x in self.own.tasks])

    @property
    def num_classes(self) -> int:
        """L, of all models."""
        return self.own.tasks[0].num_labels

    def collect_means(self, trained: Rows, counts: Tensor, cohort: Cohort) -> Tensor:
        """Each client's mean of r over its examples of each class, sent if it has any: [C, L, F]

        Args:
          trained: the clients' models.
          counts: [C, L] their examples of each class, see `class_means.counts`.
        """
        tasks = self.own.of(cohort)
        means = class_means.of_clients(cohort, represent, trained, tasks, counts=counts)
        return cohort.collect_some(means, counts > 0)


def represent(model: Params, task: Task, batch: Batch) -> Tensor:
    """r(x), the input of the header of ONE client's model -> [B, F]"""
    return task.features(task.split(model)[0], batch)
