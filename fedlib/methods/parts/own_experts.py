"""What clients predict with that have an expert of their own beside those of the clusters.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
FL-IJCAI 2022 (arXiv:2206.07832), equations 4 and 5.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine import ambient
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import each_expert
from fedlib.engine.task import Batch, Params, Task


class Alone(NamedTuple):
    """A client that predicts with its local expert."""

    own: Params


class Ensemble(NamedTuple):
    """A client that trusts all experts alike."""

    experts: Params  # [E, ...], of the clusters
    own: Params


class Mixture(NamedTuple):
    """A client whose gate weighs the experts."""

    experts: Params  # [E, ...], of the clusters
    own: Params
    gate: Params
    members: Tensor  # [E] int64, the clusters whose experts these are


class Features(NamedTuple):
    """What the bodies of experts that nobody trains make of a client's examples, in shard order."""

    experts: Tensor  # [N, E, F], of the clusters
    own: Tensor  # [N, F]


class Frozen(NamedTuple):
    """Experts that nobody trains, and what is known of what they make of examples.

    Known is what does not change with the batch: of a training example nothing where the bodies
    draw, the features where heads alone do, otherwise the logits. It is kept for as long as the
    client's gate is trained: (E + 1) F or (E + 1) L numbers for each of its examples.
    """

    experts: Params  # [E, ...], of the clusters; their heads alone where features are known
    own: Params
    train: Tensor | Features | tuple = ()  # of training examples: logits [N, E + 1, L], or features
    check: Tensor | tuple = ()  # logits of the examples that decide when to stop [N, E + 1, L]


@dataclass(frozen=True)
class ExpertsTask(Task):
    """The clusters' task for cohorts that train models of other tasks along with theirs.

    Attributes:
      others: these tasks.
    """

    others: tuple[Task, ...] = ()

    @cached_property
    def statistics(self) -> frozenset[str]:
        """Names of the running statistics of all models."""
        return super().statistics.union(*(other.statistics for other in self.others))


@dataclass(frozen=True)
class Networks:
    """What the clusters' experts and a client's own make of its examples.

    Attributes:
      task, expert: architectures of the clusters' experts and of the client's own.
      num_experts: the clusters'; the client's own draws dropout like one more.
    """

    task: Task
    expert: Task
    num_experts: int

    def logits(self, experts: Params, own: Params, batch: Batch) -> Tensor:
        """Logits of the clusters' experts and, last, of the local one -> [B, E + 1, L]"""
        shared = each_expert(lambda expert: self.task.logits(expert, batch), experts)
        with ambient.expert(self.num_experts):  # dropout of its own
            local = self.expert.logits(own, batch)
        return torch.cat([shared, local.unsqueeze(1)], dim=1)

    # -- experts that nobody trains -----------------------------------------------------

    def frozen(self, experts: Params, own: Params, cohort: Cohort, check: str) -> Frozen:
        """Experts that nobody trains, and of them once what would be the same in every epoch.

        Args:
          experts, own: leaves [C, E, ...] and [C, ...].
          cohort: the clients.
          check: split that decides when they stop.
        """
        known = cohort.score(self.logits, experts, own, split=check)  # nothing is drawn there
        (bodies, heads), (body, head) = self.task.split(experts), self.expert.split(own)
        if not self._draw(Task.logits, experts, own, cohort):
            return Frozen({}, {}, cohort.score(self.logits, experts, own), known)
        if not bodies or self._draw(Task.features, bodies, body, cohort):
            return Frozen(experts, own, check=known)
        shared = cohort.score(self._features, bodies)
        return Frozen(
            heads, head, Features(shared, cohort.score(self.expert.features, body)), known
        )

    def frozen_logits(self, frozen: Frozen, batch: Batch) -> Tensor:
        """As `logits`, of experts as `seen` -> [B, E + 1, L]"""
        features, seen = frozen.train if batch.train else frozen.check, self.seen(batch)
        if isinstance(features, Tensor):
            return features[batch.index]
        if not features:
            return self.logits(frozen.experts, frozen.own, seen)
        of_batch = features.experts[batch.index].transpose(0, 1)
        shared = each_expert(
            lambda expert: self.task.head_logits(*expert, seen), (frozen.experts, of_batch)
        )
        with ambient.expert(self.num_experts):
            local = self.expert.head_logits(frozen.own, features.own[batch.index], seen)
        return torch.cat([shared, local.unsqueeze(1)], dim=1)

    def seen(self, batch: Batch) -> Batch:
        """How experts that are not trained see a training batch: as if they were.

        Dropout is part of it; the running statistics of batch normalisation are part of the expert,
        so experts with any predict as in evaluation.
        """
        normalised = self.task.statistics or self.expert.statistics
        return batch._replace(train=False) if normalised else batch

    def _features(self, bodies: Params, batch: Batch) -> Tensor:
        """Of the clusters' experts -> [B, E, F]"""
        return each_expert(lambda body: self.task.features(body, batch), bodies)

    def _draw(self, make: Callable, experts: Params, own: Params, cohort: Cohort) -> bool:
        """Whether what some expert makes of a training example differs from batch to batch.

        Args:
          make: `Task.logits`, or `Task.features`.
          experts, own: what of them it takes, leaves [C, E, ...] and [C, ...].
        """
        rows = cohort.data.owned("train", int(cohort.host_ids[0]))[:1]
        one = Batch(cohort.data.inputs(rows), cohort.data.y[rows], torch.zeros_like(rows))
        if not self.seen(one._replace(train=True)).train:
            return False
        models = (self.task, tree.take(tree.take(experts, 0), 0)), (self.expert, tree.take(own, 0))
        return any(task.draws(make, model, one) for task, model in models)
