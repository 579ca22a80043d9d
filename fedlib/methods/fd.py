"""FD: clients exchange nothing but their mean outputs for each class, and learn from everybody's.

    client  minimises CE(h(x), y) + lam d(h(x), m_y), and notes its logits h(x) as it trains
            returns the mean of these over its examples of each class, for the classes it holds
    server  m_c <- the mean over clients of what they returned for class c

Source: Jeong et al., "Communication-Efficient On-Device Machine Learning: Federated Distillation
and Augmentation under Non-IID Private Data", 2018 (arXiv:1811.11479), Algorithm 1; as a baseline of
pFedMoE, specification section 8.
Official code: none. TsingZ0/HtFLlib (clientdistill.py, later clientfd.py) feeds global logits into
the cross-entropy as they are or after a softmax, by version, and lets an example whose class has
none distil its own output; here such an example has the cross-entropy with its label alone.
Deviation: in the paper what is averaged are probabilities, and every device learns from the mean of
all others; here, as in the baseline's description, from the mean of all, of logits. A class that
nobody in a round holds keeps its last mean, and is sent to those who hold it when they take part.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, JointTask, Task, log_probs, nll
from fedlib.methods.class_statistics import ClassStatistics
from fedlib.methods.parts import class_means
from fedlib.methods.parts.class_means import ClassMeans
from fedlib.methods.parts.settings import LogUniform, Range
from fedlib.tree import Rows, Tree

DISTILLATIONS = ("cross_entropy", "mse")
NOTED = "logits by class"  # among what is trained: sums [L, K] of K logits, by label


class State(NamedTuple):
    """Every client's model, what the server knows of each class, what the solvers remember."""

    models: Rows  # private
    logits: ClassMeans  # m [L, K]
    memory: Memory


@dataclass(frozen=True)
class NotingTask(JointTask):
    """Models that note their logits: sums are carried along as running statistics are."""

    @cached_property
    def statistics(self) -> frozenset[str]:
        """Names of the running statistics of all modules, and of the sums."""
        return super().statistics | {NOTED}


@dataclass(frozen=True, kw_only=True)
class FD(ClassStatistics):
    """Federated distillation.

    Attributes:
      lam: weight of the distillation; 0 is training alone.
      distillation: d, "cross_entropy" of the softmax of both, or "mse" of the logits.
    """

    lam: float = 1.0
    distillation: str = "cross_entropy"

    choices: ClassVar = {"distillation": DISTILLATIONS}
    ranges: ClassVar = {"lam": Range(0)}
    SPACE: ClassVar = {"lam": LogUniform(1e-2, 10)}

    def __post_init__(self):
        """Raises ValueError for settings that leave examples of a shard out."""
        ClassStatistics.__post_init__(self)
        if self.local.steps is not None or self.local.drop_last:
            raise ValueError("FD averages over whole epochs: local has no steps and no drop_last")
        _ = self.num_logits  # checks itself

    @cached_property
    def noting(self) -> NotingTask:
        """The task of cohorts in training."""
        return self.joint.extended(NotingTask, others=self.joint.others)

    def init(self, num_clients: int, seed: int) -> State:
        """Drawn models, and nothing known of any class."""
        models = self.own.init(num_clients, seed)
        memory = self.local.memory({"model": self.joint.trainable(models)}, num_clients)
        logits = class_means.unknown(self.num_classes, self.num_logits, self.task)
        return State(models, logits, memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Clients train towards the mean logits, and renew them."""
        counts = class_means.counts(cohort, self.num_classes)
        held = counts > 0
        nothing = state.logits.values.new_zeros(cohort.size, self.num_classes, self.num_logits)
        trained, memory = replace(cohort, task=self.noting).fit(
            self.loss,
            {"model": tree.take(state.models, cohort.host_ids), NOTED: nothing},
            self.own.of(cohort),
            class_means.send(cohort, state.logits, held),
            local=self.local,
            memory=state.memory,
        )
        means = class_means.means(trained[NOTED], counts * self.local.epochs)
        logits = class_means.averaged(state.logits, cohort.collect_some(means, held), held)
        models = cohort.put(state.models, trained["model"])
        return State(models, logits, memory)

    def loss(self, params: Tree, task: Task, targets: ClassMeans, batch: Batch) -> Tensor:
        """The client's loss, and how far its outputs are from everybody's -> []"""
        logits = task.logits(params["model"], batch)
        # In place, as running statistics are; models that have any see no padded batches.
        of_class = class_means.indicator(batch.y, self.num_classes).to(logits.dtype)
        params[NOTED].add_(of_class.T @ logits.detach())
        target, known = targets.of(batch.y)
        losses = nll(log_probs(logits), batch.y, task.class_weights)
        return batch.mean(losses + self.lam * torch.where(known, self.apart(logits, target), 0))

    def apart(self, logits: Tensor, target: Tensor) -> Tensor:
        """d of each example's logits [B, K] and their target -> [B]"""
        if self.distillation == "mse":
            return (logits - target).square().mean(-1)
        return -(log_probs(target).exp() * log_probs(logits)).sum(-1)
