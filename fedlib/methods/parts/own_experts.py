"""Predictors of clients that have a local expert beside the clusters' experts.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
FL-IJCAI 2022 (arXiv:2206.07832), equations 4 and 5.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine import ambient
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import each_expert, mixture_log_probs
from fedlib.engine.task import Batch, JointTask, Params, Task, log_probs, nll


class Alone(NamedTuple):
    """A client that predicts with its local expert."""

    own: Params


class Ensemble(NamedTuple):
    """A client that gives all experts the same weight."""

    experts: Params  # [E, ...], of the clusters
    own: Params


class Mixture(NamedTuple):
    """A client whose gate weights the experts."""

    experts: Params  # [E, ...], of the clusters
    own: Params
    gate: Params
    members: Tensor  # [E] int64, the clusters whose experts these are


class Features(NamedTuple):
    """Features of a client's examples from the bodies of frozen experts, in shard order."""

    experts: Tensor  # [N, E, F], of the clusters
    own: Tensor  # [N, F]


class Cache(NamedTuple):
    """Frozen experts, and those of their outputs that are the same for every batch.

    Of training examples these are the features, unless the bodies use random numbers (dropout).
    They are kept while the client's gate is trained: (E + 1) F numbers for each example.
    """

    experts: Params  # [E, ...], of the clusters; only their heads where features are known
    own: Params
    features: Features | tuple = ()  # of training examples
    stop_logits: Tensor | tuple = ()  # of the early-stopping examples [N, E + 1, L]


@dataclass(frozen=True)
class Networks:
    """Outputs of the clusters' experts, the client's local expert and its gate.

    Attributes:
      task, expert, gate: architectures of the clusters' experts, the local expert and the gate.
      num_experts: J, number of the clusters' experts; the local expert is number J for dropout.
    """

    task: Task
    expert: Task
    gate: Task
    num_experts: int

    def __post_init__(self):
        """Raises ValueError for a gate with the wrong number of outputs."""
        outputs, wanted = self.gate.num_outputs, self.num_experts + 1
        wanted = 1 if wanted == 2 else wanted
        if outputs != wanted:
            raise ValueError(
                f"the gate of {self.num_experts} clusters' experts and a local one needs {wanted} "
                f"output{'s' * (wanted > 1)}, got {outputs}"
            )

    @cached_property
    def together(self) -> JointTask:
        """The task that trains experts and gate together."""
        return self.task.extend(JointTask, others=(self.expert, self.gate))

    def logits(self, experts: Params, own: Params, batch: Batch) -> Tensor:
        """Logits of the clusters' experts, then of the local expert -> [B, E + 1, L]"""
        shared = each_expert(lambda expert: self.task.logits(expert, batch), experts)
        with ambient.expert(self.num_experts):  # its own dropout masks
            local = self.expert.logits(own, batch)
        return torch.cat([shared, local.unsqueeze(1)], dim=1)

    # -- predictions --------------------------------------------------------------------

    def multiply(self, ensemble: Ensemble, batch: Batch) -> Tensor:
        """The ensemble: the product of its experts, by the sum of their logits -> [B, L]"""
        return log_probs(self.logits(ensemble.experts, ensemble.own, batch).sum(1))

    def mix(self, mixture: Mixture, batch: Batch) -> Tensor:
        """Equation 5: the experts' probabilities, weighted by the gate -> [B, L]"""
        experts = log_probs(self.logits(mixture.experts, mixture.own, batch))
        return mixture_log_probs(self.log_weights(mixture.gate, mixture.members, batch), experts)

    def log_weights(self, gate: Params, members: Tensor, batch: Batch) -> Tensor:
        """Log-weights of the gate: of the clusters' experts, then the local one -> [B, E + 1]

        With two experts the gate has a single output, the logit of the local expert.
        """
        outputs = self.outputs(members)
        with ambient.expert(self.num_experts + 1):  # its own dropout masks
            return log_probs(self.gate.logits(gate, batch)[:, outputs])

    def outputs(self, members: Tensor) -> Tensor:
        """Indices of the gate's outputs for these experts and the local one; one index for two."""
        # Filled there: an upload of the number would wait in every step.
        local = members.new_full((1,), self.gate.num_outputs - 1)
        return local if len(members) == 1 else torch.cat([members, local])

    def mean_weights(self, mixtures: Mixture, cohort: Cohort) -> Tensor:
        """Mean gate weights of all clusters' experts and the local one on test data [C, E + 1]

        0 for experts that are not in use.
        """
        gates = mixtures.gate, mixtures.members
        by_example = cohort.score(lambda *own: self.log_weights(*own).exp(), *gates, split="test")
        local = mixtures.members.new_full((1,), self.num_experts)
        weights = by_example.new_zeros(cohort.size, self.num_experts + 1)
        used = torch.cat([mixtures.members[0], local])
        weights[:, used] = cohort.example_mean(by_example, "test")
        return weights

    # -- losses in training -------------------------------------------------------------

    def mixture_losses(self, models: dict, members: Tensor, batch: Batch) -> Tensor:
        """Negative log-likelihoods of ONE client's mixture -> [B]"""
        mixture = Mixture(**models, members=members)
        return nll(self.mix(mixture, batch), batch.y, self.task.class_weights)

    def gate_losses(self, models: dict, frozen: Cache, members: Tensor, batch: Batch) -> Tensor:
        """The same with frozen experts -> [B]"""
        experts = log_probs(self.frozen_logits(frozen, batch))
        weights = self.log_weights(models["gate"], members, batch)
        return nll(mixture_log_probs(weights, experts), batch.y, self.task.class_weights)

    # -- frozen experts -----------------------------------------------------------------

    def freeze(self, experts: Params, own: Params, cohort: Cohort, stop_split: str) -> Cache:
        """Frozen experts, with the outputs that are the same in every epoch.

        Args:
          experts, own: leaves [C, E, ...] and [C, ...].
          cohort: the clients.
          stop_split: the split that decides when they stop.
        """
        stop_logits = cohort.score(self.logits, experts, own, split=stop_split)  # no dropout
        (bodies, heads), (body, head) = self.task.split(experts), self.expert.split(own)
        if not bodies or self._has_dropout(bodies, body, cohort):
            return Cache(experts, own, stop_logits=stop_logits)
        shared = cohort.score(self._features, bodies)
        local = cohort.score(self.expert.features, body)
        return Cache(heads, head, Features(shared, local), stop_logits)

    def frozen_logits(self, frozen: Cache, batch: Batch) -> Tensor:
        """As `logits`, for frozen experts on the batch that `view` gives -> [B, E + 1, L]"""
        if not batch.train and len(frozen.stop_logits):
            return frozen.stop_logits[batch.index]
        features, seen = frozen.features, self.view(batch)
        if not features:
            return self.logits(frozen.experts, frozen.own, seen)
        pairs = frozen.experts, features.experts[batch.index].transpose(0, 1)
        shared = each_expert(lambda pair: self.task.head_logits(*pair, seen), pairs)
        with ambient.expert(self.num_experts):
            local = self.expert.head_logits(frozen.own, features.own[batch.index], seen)
        return torch.cat([shared, local.unsqueeze(1)], dim=1)

    def view(self, batch: Batch) -> Batch:
        """The batch as frozen experts see it: in training mode, with dropout.

        Experts with batch normalisation see it in evaluation mode, as training would change their
        running statistics.
        """
        normalised = self.task.statistics or self.expert.statistics
        return batch._replace(train=False) if normalised else batch

    def _features(self, bodies: Params, batch: Batch) -> Tensor:
        """Features from the clusters' experts -> [B, E, F]"""
        return each_expert(lambda body: self.task.features(body, batch), bodies)

    def _has_dropout(self, bodies: Params, body: Params, cohort: Cohort) -> bool:
        """Whether some expert's features of a training example differ from batch to batch."""
        rows = cohort.data.rows_of("train", int(cohort.host_ids[0]))[:1]
        one = Batch(cohort.data.inputs(rows), cohort.data.y[rows], torch.zeros_like(rows))
        if not self.view(one._replace(train=True)).train:
            return False
        some = (self.task, tree.take(tree.take(bodies, 0), 0)), (self.expert, tree.take(body, 0))
        return any(task.draws(Task.features, params, one) for task, params in some)
