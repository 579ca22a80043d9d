"""APFL: every client predicts with an interpolation between its own and the shared model.

    each mini-batch  g <- g - lr * grad f(g)
                     v <- v - lr * grad_v f(alpha * v + (1 - alpha) * g)
    server           averages g; v never leaves its client

Both updates use g and v from before the mini-batch. By the chain rule, `grad_v` is alpha times the
gradient of f at the interpolated model.

Source: Deng et al., "Adaptive Personalized Federated Learning", 2020.
Deviation: alpha is fixed. The paper's steps are plain gradient steps; here the solver's momentum
and weight decay act on g and v separately. The paper has no batch normalisation: here the
interpolated model has its own running statistics, which are kept with v; those of g are averaged
like its parameters. The recorded training loss is the sum of both models' losses.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Method, Range
from fedlib.methods.parts.settings import Uniform


class State(NamedTuple):
    """The server's model, the clients' own models, and the memory of both solvers."""

    params: Params  # g
    models: Params  # v, leaves [num_clients, ...], private
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class APFL(Method):
    """A shared model, and for each client its own model.

    Attributes:
      local: solver of both models.
      alpha: weight of the client's own model in the interpolation, in [0, 1]; 0 predicts with the
        model of FedAvg, 1 is Local.
    """

    local: Solver
    alpha: float = 0.5

    ranges: ClassVar = {"alpha": Range(0, 1)}
    SPACE: ClassVar = {"alpha": Uniform(0.1, 0.9)}
    shared: ClassVar = ("params",)
    protocols: ClassVar = {
        "seen": {"default": "personalise"},
        "unseen": {"default": "welcome"},
    }

    def init(self, num_clients: int, seed: int) -> State:
        """The same new model for the server and all clients."""
        params = self.task.init(seed)
        weights = self.task.trainable(params)
        memory = self.local.memory({"shared": weights, "own": weights}, num_clients)
        return State(params, tree.repeat(params, num_clients), memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Both models train on the same mini-batches; the server averages the shared one."""
        start = {
            "shared": cohort.broadcast(state.params),
            "own": tree.take(state.models, cohort.ids),
        }
        (sent, own), memory = cohort.fit(
            self.loss,
            start,
            local=self.local,
            memory=state.memory,
            returns=lambda part, trained: (part.total(trained["shared"]), trained["own"]),
        )
        models = cohort.put(state.models, own)
        return State(cohort.average(sent, state.params), models, memory)

    def loss(self, models: dict[str, Params], batch: Batch) -> Tensor:
        """f(g) + f(alpha v + (1 - alpha) g), with the second g constant -> []

        Its gradients with respect to g and v are those of the algorithm's two steps.
        """
        shared, own = models["shared"], models["own"]
        mixed = self.interpolate(own, tree.map(Tensor.detach, shared))
        return self.task.loss(shared, batch) + self.task.loss(mixed, batch)

    def interpolate(self, own: Params, shared: Params) -> Params:
        """alpha v + (1 - alpha) g, with the running statistics of `own`."""
        v, g = self.task.trainable(own), self.task.trainable(shared)
        mixed = tree.map(lambda v, g: self.alpha * v + (1 - self.alpha) * g, v, g)
        return {**own, **mixed}

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The interpolation of each client's model and the server's."""
        return self.interpolate(tree.take(state.models, cohort.ids), cohort.broadcast(state.params))

    def welcome(self, state: State, cohort: Cohort) -> Params:
        """The server's model, for clients without a model."""
        return cohort.broadcast(state.params)
