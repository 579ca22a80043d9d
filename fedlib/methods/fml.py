"""FML: a private model and a shared one learn from the labels and from each other.

    client  L_private = alpha CE(private) + (1 - alpha) KL(shared || private)
            L_shared  = beta  CE(shared)  + (1 - beta)  KL(private || shared)
            trains both on the same mini-batches; returns the shared model
    server  averages the shared models by numbers of examples

The first argument of KL is the target: the other model's probabilities, as a constant. A client
predicts with its private model.

Source: Shen et al., "Federated Mutual Learning", 2020 (arXiv:2006.16765), as a baseline of Yi et
al., pFedMoE, 2024 (arXiv:2402.01350), where the shared model is a CNN-5; section 8 of
fedlib/papers/pfedmoe/README.md.
Official code: not used. TsingZ0/PFLlib and HtFLlib differ in three ways: their defaults are alpha 1
and beta 0, so the private model learns only from labels and the shared one never does; KL is also
divided by the number of classes; and the gradient of each loss flows into the other model through
its target.
Deviation: an unseen client has no private model and predicts with the shared one. The recorded
training loss is the sum of both losses.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Batch, Params, Task, log_probs, nll
from fedlib.methods.base import Range, Uniform
from fedlib.methods.mutual_learning import MutualLearning, State, kl_divergence


@dataclass(frozen=True, kw_only=True)
class FML(MutualLearning):
    """Mutual learning of a private model and the shared `task`.

    Attributes:
      alpha: weight of the labels in the private model's loss, in [0, 1]; 1 is Local. 0.5 is ours.
      beta: weight of the labels in the shared model's loss, in [0, 1]; 1 is FedAvg of the shared
        model. 0.5 is ours.
    """

    alpha: float = 0.5
    beta: float = 0.5

    look = "FML", "#5E8C31", (3, 1, 0), "dashed"
    ranges: ClassVar = dict.fromkeys(("alpha", "beta"), Range(0, 1))
    SPACE: ClassVar = dict.fromkeys(("alpha", "beta"), Uniform(0.1, 0.9))
    shared: ClassVar = ("small",)

    def init(self, num_clients: int, seed: int) -> State:
        """New models: the shared one, and for clients one draw of each architecture."""
        small = self.draw_small(seed)
        models = {"large": self.own.init(num_clients, seed)}
        weights = self.joint.trainable({**models, "small": small})
        return State(small, models, self.local.memory(weights, num_clients))

    def round(self, state: State, cohort: Cohort) -> State:
        """Clients train both models together; the server averages the shared one."""
        start = tree.take(state.models, cohort.host_ids)
        start |= {"small": cohort.broadcast(state.small)}
        trained, memory = self.fit(cohort, start, state.memory)
        small = cohort.average(trained.pop("small"), state.small)
        return State(small, cohort.put(state.models, trained), memory)

    def loss(self, models: dict[str, Params], task: Task, batch: Batch) -> Tensor:
        """L_private + L_shared; each model's gradient is that of its own loss -> []"""
        own, small = map(log_probs, self.logits(models, task, batch))
        mixed = [
            share * nll(ours, batch.y, self.task.class_weights)
            + (1 - share) * kl_divergence(target, ours)
            for share, ours, target in ((self.alpha, own, small), (self.beta, small, own))
        ]
        return batch.mean(sum(mixed))
