"""FD: clients exchange only their mean logits of each class, and distil the mean of all clients.

    client  minimises CE(h(x), y) + lam CE(h(x), softmax(m_y)); adds up its logits h(x) as it trains
            returns the mean of its logits over its examples of each class that it holds
    server  m_c <- the mean over clients of their means of class c

Source: Jeong et al., "Communication-Efficient On-Device Machine Learning: Federated Distillation
and Augmentation under Non-IID Private Data", 2018 (arXiv:1811.11479), Algorithm 1; as a baseline of
pFedMoE, section 8 of fedlib/papers/pfedmoe/README.md.
Official code: none. TsingZ0/HtFLlib (clientdistill.py, later clientfd.py) uses global logits as
targets of the cross-entropy, with or without a softmax, depending on its version. There an example
of a class without global logits distils its own output; here its loss is only the cross-entropy
with its label.
Deviation: the paper averages probabilities, and every device learns from the mean of all others;
here, as in the baseline's description, clients learn from the mean logits of all. A class that no
client of a round holds keeps its last mean.
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

NOTED = "logits by class"  # entry of the trained tree: sums [L, K] of K logits, by label


class State(NamedTuple):
    """Every client's model, the server's mean logits of each class, and the solvers' memory."""

    models: Rows  # private
    logits: ClassMeans  # m [L, K]
    memory: Memory


@dataclass(frozen=True)
class NotingTask(JointTask):
    """Models that add up their logits; the sums are handled like running statistics."""

    @cached_property
    def statistics(self) -> frozenset[str]:
        """Names of the running statistics of all modules, and of the sums."""
        return super().statistics | {NOTED}


@dataclass(frozen=True, kw_only=True)
class FD(ClassStatistics):
    """Federated distillation.

    Attributes:
      lam: weight of the distillation, at least 0; 0 is Local. 1 is the reference library's default.
    """

    lam: float = 1.0

    look = "FD", "#8C564B", (3, 0, 90), "dotted"
    ranges: ClassVar = {"lam": Range(0)}
    SPACE: ClassVar = {"lam": LogUniform(1e-2, 10)}

    def __post_init__(self):
        """Raises ValueError for a solver that does not train on whole epochs."""
        ClassStatistics.__post_init__(self)
        if self.local.steps is not None or self.local.drop_last:
            raise ValueError("FD averages over whole epochs: local must have no steps, drop_last")
        _ = self.num_logits  # raises if architectures differ

    @cached_property
    def noting(self) -> NotingTask:
        """The task of cohorts in training."""
        return self.joint.extend(NotingTask, others=self.joint.others)

    def init(self, num_clients: int, seed: int) -> State:
        """New models; no class has mean logits."""
        models = self.own.init(num_clients, seed)
        memory = self.local.memory({"model": self.joint.trainable(models)}, num_clients)
        logits = class_means.empty(self.num_classes, self.num_logits, self.task)
        return State(models, logits, memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Clients train towards the mean logits; the server averages their new means."""
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
        logits = class_means.average(state.logits, cohort.collect_some(means, held), held)
        return State(cohort.put(state.models, trained["model"]), logits, memory)

    def loss(self, params: Tree, task: Task, targets: ClassMeans, batch: Batch) -> Tensor:
        """The client's loss plus the distillation loss -> []"""
        logits = task.logits(params["model"], batch)
        # In place, like running statistics; models with such entries get no padded batches.
        of_class = class_means.indicator(batch.y, self.num_classes).to(logits.dtype)
        params[NOTED].add_(of_class.T @ logits.detach())
        target, known = targets.of(batch.y)
        losses = nll(log_probs(logits), batch.y, task.class_weights)
        apart = -(log_probs(target).exp() * log_probs(logits)).sum(-1)
        return batch.mean(losses + self.lam * torch.where(known, apart, 0))
