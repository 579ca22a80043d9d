"""Mutual learning: each client's private model and a small shared model teach each other.

The common base of FML, FedKD and FedAPEN. A client trains both models on the same batches. Each
model learns from the labels and from the other model's outputs, which are constants in its loss.
Only the small model is communicated.

Source: a family of baselines of Yi et al., pFedMoE, 2024 (arXiv:2402.01350), after Zhang et al.,
"Deep Mutual Learning", CVPR 2018; section 8 of fedlib/papers/pfedmoe/README.md.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine import ambient
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import expert_seed
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, JointTask, Params, Task, mean_from
from fedlib.methods.parts.own_models import Own
from fedlib.methods.private_models import PrivateModels
from fedlib.tree import Rows, Tree

SMALL = 1  # expert number of the small model for dropout masks; the private model is number 0


class State(NamedTuple):
    """The server's model, the clients' private ones, and the solvers' memory."""

    small: Params
    models: dict[str, Rows]  # of all clients: "large", and in FedKD "projection", its maps W
    memory: Memory


class View(NamedTuple):
    """A model's outputs for a batch."""

    features: Tensor  # [B, ..., F] input of the head
    logits: Tensor  # [B, ..., L]


@dataclass(frozen=True, kw_only=True)
class MutualLearning(PrivateModels):
    """A private model and a shared one in every client.

    The state has the server's model, `small`, and in `models` the private ones, "large".

    Attributes:
      task: architecture of the shared model.
      local: solver of both models.
      large: the architectures of the private models, in turn; () is `task` for all.
    """

    protocols: ClassVar = {
        "seen": {"default": "personalise", "aggregated": "serve"},
        "unseen": {"default": "serve"},
    }

    @cached_property
    def joint(self) -> JointTask:
        """The task of cohorts that train both models."""
        return self.own.joint(self.task)

    def draw_small(self, seed: int) -> Params:
        """The small model before the first round, with the seed of a second expert.

        A private model may have the same architecture. With equal seeds, both models would be
        equal and learn nothing from each other.
        """
        return self.task.init(expert_seed(seed, 1))

    def logits(self, models: dict[str, Params], task: Task, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits of ONE client's private model (architecture `task`) and the small: 2 x [B, L]"""
        own = task.logits(models["large"], batch)
        with ambient.expert(SMALL):
            return own, self.task.logits(models["small"], batch)

    def views(self, models: dict[str, Params], task: Task, batch: Batch) -> tuple[View, View]:
        """As `logits`, with the inputs of the two heads."""
        own = _view(task, models["large"], batch)
        with ambient.expert(SMALL):
            return own, _view(self.task, models["small"], batch)

    def personalise(self, state: Any, cohort: Cohort) -> Any:
        """Each client's private model."""
        return self.own.predictors(state.models["large"], cohort)

    def serve(self, state: Any, cohort: Cohort) -> Params:
        """The server's model."""
        return cohort.held(state.small)

    def outputs(self, personal: Any, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client, from its private model or the small one -> [B, L]"""
        if isinstance(personal, Own):
            return PrivateModels.outputs(self, personal, batch)
        return self.task.log_probs(personal, batch)


def kl_divergence(target: Tensor, log_probs: Tensor) -> Tensor:
    """KL(target || ours) of every example, from log-probabilities; the target is constant: [B]"""
    target = target.detach()
    return mean_from(1, (target.exp() * (target - log_probs)).sum(-1))


def plain_mean(models: Tree) -> Tree:
    """The average with equal weights for all clients: [C, ...] -> [...]"""
    return tree.map(lambda x: x.mean(0), models)


def _view(task: Task, params: Params, batch: Batch) -> View:
    body, head = task.split(params)
    features = task.features(body, batch)
    return View(features, task.head_logits(head, features, batch))
