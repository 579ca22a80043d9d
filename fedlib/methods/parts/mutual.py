"""Mutual learning: a model of each client's own, and a small one that all share, teach each other.

What FML, FedKD and FedAPEN have in common. A client trains both models on the same batches; each
learns from the labels and from what the other makes of the examples, which is held fixed. Only
the small model is communicated.

Source: the family of baselines of Yi et al., pFedMoE, 2024 (arXiv:2402.01350), after Zhang et al.,
"Deep Mutual Learning", CVPR 2018; specification section 8.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine import ambient
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import expert_seed
from fedlib.engine.task import Batch, JointTask, Params, Task, mean_from
from fedlib.methods.parts.own_models import OwnModels
from fedlib.tree import Rows, Tree

SMALL = 1  # number of the small model's dropout masks; those of the own model are number 0


class Own(NamedTuple):
    """A client that predicts with the model of its own."""

    model: Rows  # of C clients
    task: Rows  # the architecture of each


class View(NamedTuple):
    """What a model makes of a batch."""

    features: Tensor  # [B, ..., F] what its head is fed with
    logits: Tensor  # [B, ..., L]


@dataclass(frozen=True)
class Pairs:
    """The two models of every client.

    Attributes:
      small: the architecture that is shared.
      own: those of the clients.
    """

    small: Task
    own: OwnModels

    @classmethod
    def among(cls, task: Task, large: tuple[Task, ...]) -> "Pairs":
        """A small model `task` beside one of the architectures `large`; beside another, if none."""
        return cls(task, OwnModels.among(task, large))

    def log_probs(self, personal: Own | Params, batch: Batch) -> Tensor:
        """Of the model that ONE client predicts with: its own, or the small one -> [B, L]"""
        match personal:
            case Own(model, task):
                return task.log_probs(model, batch)
        return self.small.log_probs(personal, batch)

    def draw_small(self, seed: int) -> Params:
        """The small model before the first round, drawn as a second expert of the run.

        A client's own model may have the same architecture. Drawn alike, the two would agree on
        everything and so learn nothing from each other.
        """
        return self.small.init(expert_seed(seed, 1, "independent"))

    @cached_property
    def joint(self) -> JointTask:
        """The task of a cohort that trains both."""
        return self.own.joint(self.small)

    def training(self, cohort: Cohort) -> Cohort:
        """The same clients, training both models."""
        return replace(cohort, task=self.joint)

    def logits(self, models: dict[str, Params], task: Task, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of ONE client's own model, whose architecture is `task`, and the small -> 2 x [B, L]"""
        own = task.logits(models["large"], batch)
        with ambient.expert(SMALL):
            return own, self.small.logits(models["small"], batch)

    def views(self, models: dict[str, Params], task: Task, batch: Batch) -> tuple[View, View]:
        """As `logits`, with the representations that the two heads are fed with."""
        own = _view(task, models["large"], batch)
        with ambient.expert(SMALL):
            return own, _view(self.small, models["small"], batch)

    def predictors(self, models: Rows, cohort: Cohort) -> Own:
        """The cohort's clients, of all clients' own `models`."""
        return Own(tree.take(models, cohort.host_ids), self.own.of(cohort))


def divergence(target: Tensor, log_probs: Tensor) -> Tensor:
    """KL(target || ours) of every example, of log-probabilities; the target is fixed -> [B]"""
    target = target.detach()
    return mean_from(1, (target.exp() * (target - log_probs)).sum(-1))


def plain_mean(models: Tree) -> Tree:
    """The average in which all clients weigh alike: [C, ...] -> [...]"""
    return tree.map(lambda x: x.mean(0), models)


def _view(task: Task, params: Params, batch: Batch) -> View:
    body, head = task.split(params)
    features = task.features(body, batch)
    return View(features, task.head_logits(head, features, batch))
