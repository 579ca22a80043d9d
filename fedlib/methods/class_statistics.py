"""The common base of methods whose clients keep whole models and exchange class means."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from fedlib.engine.task import Batch, Params, Task
from fedlib.methods.parts import class_means
from fedlib.methods.private_models import PrivateModels


@dataclass(frozen=True, kw_only=True)
class ClassStatistics(PrivateModels):
    """Clients with their own models, which classify alike."""

    @cached_property
    def num_logits(self) -> int:
        """Number of outputs of every model."""
        return class_means.common("outputs", [x.num_outputs for x in self.own.tasks])

    @property
    def num_classes(self) -> int:
        """L; a single output means two classes."""
        return max(self.num_logits, 2)


def represent(model: Params, task: Task, batch: Batch) -> Tensor:
    """r(x), the input of the header of ONE client's model -> [B, F]"""
    return task.features(task.split(model)[0], batch)
