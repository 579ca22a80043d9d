"""FML: a private model and a shared one learn from the labels and from each other.

    client  L_private = alpha CE(private) + (1 - alpha) KL(shared || private)
            L_shared  = beta  CE(shared)  + (1 - beta)  KL(private || shared)
            steps of both on the same mini-batches; returns the shared model
    server  averages the shared models by examples

The first argument of KL is what a model learns from: the other's probabilities, held fixed. A
client predicts with its private model.

Source: Shen et al., "Federated Mutual Learning", 2020 (arXiv:2006.16765), as a baseline of Yi et
al., pFedMoE, 2024 (arXiv:2402.01350), where the shared model is a CNN-5; specification section 8.
Official code: the method's is not used. TsingZ0/PFLlib and HtFLlib differ in three ways: alpha 1
and beta 0 by default, with which the private model learns from the labels alone and the shared one
never sees any; KL divided by the number of classes, too; and gradients of each loss that flow into
the other model through its target.
Deviation: on an unseen client, who has no private model, the shared one predicts. The training
loss that is recorded is the sum of both.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Batch, Params, Task, log_probs, nll
from fedlib.methods.base import Method, Range
from fedlib.methods.parts.mutual import Own, Pairs, divergence
from fedlib.methods.parts.settings import Uniform
from fedlib.tree import Rows


class State(NamedTuple):
    """The server's model, what clients keep, and what the solvers of both remember."""

    small: Params
    models: dict[str, Rows]  # "large", the private models of all clients
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class FML(Method):
    """Mutual learning of a private model and the shared `task`.

    Attributes:
      local: solver of both models.
      large: the architectures of the private models, in turn; () is `task` for everybody.
      alpha: share of the labels in the private model's loss; 1 is local training.
      beta: share of the labels in the shared model's loss; 1 is FedAvg of it.
    """

    local: Solver
    large: tuple[Task, ...] = ()
    alpha: float = 0.5
    beta: float = 0.5

    ranges: ClassVar = dict.fromkeys(("alpha", "beta"), Range(0, 1))
    SPACE: ClassVar = dict.fromkeys(("alpha", "beta"), Uniform(0.1, 0.9))
    protocols: ClassVar = {
        "seen": {"default": "personalise", "aggregated": "serve"},
        "unseen": {"default": "serve"},
    }
    shared: ClassVar = ("small",)

    @cached_property
    def pairs(self) -> Pairs:
        """The two models of every client."""
        return Pairs.among(self.task, self.large)

    def init(self, num_clients: int, seed: int) -> State:
        """Drawn models: one for the server, one of each architecture for the clients."""
        small = self.pairs.draw_small(seed)
        models = {"large": self.pairs.own.init(num_clients, seed)}
        weights = self.pairs.joint.trainable({**models, "small": small})
        return State(small, models, self.local.memory(weights, num_clients))

    def round(self, state: State, cohort: Cohort) -> State:
        """Both models train together; the shared one is averaged."""
        own = tree.take(state.models, cohort.host_ids)
        trained, memory = self.pairs.training(cohort).fit(
            self.loss,
            own | {"small": cohort.broadcast(state.small)},
            self.pairs.own.of(cohort),
            local=self.local,
            memory=state.memory,
        )
        small = cohort.average(trained.pop("small"), state.small)
        return State(small, cohort.put(state.models, trained), memory)

    def loss(self, models: dict[str, Params], task: Task, batch: Batch) -> Tensor:
        """L_private + L_shared: each model's gradient is that of its own loss -> []"""
        own, small = map(log_probs, self.pairs.logits(models, task, batch))
        mixed = [
            share * nll(ours, batch.y, self.task.class_weights)
            + (1 - share) * divergence(target, ours)
            for share, ours, target in ((self.alpha, own, small), (self.beta, small, own))
        ]
        return batch.mean(sum(mixed))

    def personalise(self, state: State, cohort: Cohort) -> Own:
        """Each client's private model."""
        return self.pairs.predictors(state.models["large"], cohort)

    def serve(self, state: State, cohort: Cohort) -> Params:
        """The server's model."""
        return cohort.held(state.small)

    def predict(self, personal: Own | Params, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        return self.pairs.log_probs(personal, batch)
