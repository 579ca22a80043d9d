"""APFL: every client predicts with an interpolation between its own and the shared model.

    each mini-batch  g <- g - lr * grad f(g)
                     v <- v - lr * grad_v f(alpha * v + (1 - alpha) * g)
    server           averages g; v never leaves its client

Both updates use g and v from before the mini-batch. By the chain rule, `grad_v` is alpha times the
gradient of f at the interpolated model.

Source: Deng et al., "Adaptive Personalized Federated Learning", 2020.
Deviation: alpha is fixed. Averages are by numbers of examples, the paper's are plain. The paper's
steps are plain gradient steps; here the solver's momentum and weight decay act on g and v
separately. The paper has no batch normalisation: here the interpolated model has its own running
statistics, which are kept with v; those of g are averaged like its parameters. The recorded
training loss is the sum of both models' losses.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Range, Uniform
from fedlib.methods.two_models import State, TwoModels


@dataclass(frozen=True, kw_only=True)
class APFL(TwoModels):
    """A shared model, and for each client its own model.

    Attributes:
      alpha: weight of the client's own model in the interpolation, in [0, 1]; 0 predicts with the
        model of FedAvg, 1 is Local.
    """

    alpha: float = 0.5

    look = "APFL", "#44AA99", ">", "long"
    ranges: ClassVar = {"alpha": Range(0, 1)}
    SPACE: ClassVar = {"alpha": Uniform(0.1, 0.9)}

    def loss(self, models: dict[str, Params], received: Params, batch: Batch) -> Tensor:
        """f(g) + f(alpha v + (1 - alpha) g), with the second g constant -> []

        Its gradients with respect to g and v are those of the algorithm's two steps.
        """
        shared, own = models["shared"], models["own"]
        mixed = self.interpolate(own, tree.map(Tensor.detach, shared))
        return self.task.loss(shared, batch) + self.task.loss(mixed, batch)

    def interpolate(self, own: Params, shared: Params) -> Params:
        """alpha v + (1 - alpha) g, with the running statistics of `own`."""
        v, g = self.task.trainable(own), self.task.trainable(shared)
        return {**own, **tree.map(lambda v, g: self.alpha * v + (1 - self.alpha) * g, v, g)}

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The interpolation of each client's model and the server's."""
        return self.interpolate(tree.take(state.models, cohort.ids), cohort.broadcast(state.params))
