"""FedProto: clients exchange prototypes, the mean representation of each class.

    client  minimises CE(h(x), y) + lam MSE(r(x), P_y); r is the input of the header
            returns the mean of r over its examples of each class that it holds
    server  P_c <- the mean over clients of their means of class c

Class means are computed after training, in evaluation mode. Clients predict with their classifier
or, in the protocol "nearest", with the class whose prototype is nearest to r(x).

Source: Tan et al., "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI
2022, Algorithm 1; as a baseline of pFedMoE, section 8 of fedlib/papers/pfedmoe/README.md.
Official code: yuetan031/FedProto. Its distance is the mean square over examples and features, as
here; it predicts with the nearest prototype, and has none before the first round.
Deviation: clients have equal weights; the paper weights them by their examples of the class. A
class that no client of a round holds keeps its prototype. Clients receive only the prototypes of
the classes that they hold, as training needs no others; the download of the other prototypes for
"nearest" is not counted, as in all evaluations.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params, Task, log_probs, nll
from fedlib.methods.class_statistics import ClassStatistics, represent
from fedlib.methods.parts import class_means
from fedlib.methods.parts.class_means import ClassMeans
from fedlib.methods.parts.own_models import Own
from fedlib.methods.parts.settings import LogUniform, Range
from fedlib.tree import Rows


class State(NamedTuple):
    """Every client's model, the server's prototypes, and the solvers' memory."""

    models: Rows  # private
    prototypes: ClassMeans  # P [L, F]
    memory: Memory


class Nearest(NamedTuple):
    """A client that predicts with the nearest prototype."""

    model: Rows
    task: Rows
    prototypes: ClassMeans  # [C, L, F]


@dataclass(frozen=True, kw_only=True)
class FedProto(ClassStatistics):
    """Federated prototype learning.

    Attributes:
      lam: weight of the distance to the prototype, at least 0; 0 is Local. The default is ours.
    """

    lam: float = 1.0

    look = "FedProto", "#1B9E77", (6, 0, 30), "dashed"
    ranges: ClassVar = {"lam": Range(0)}
    SPACE: ClassVar = {"lam": LogUniform(1e-2, 10)}
    final_protocols: ClassVar = {"seen": {"nearest": "by_prototypes"}, "unseen": {}}

    def __post_init__(self):
        """Raises ValueError for representations of different widths."""
        ClassStatistics.__post_init__(self)
        _ = self.num_logits, self.num_features  # raise if architectures differ

    @cached_property
    def num_features(self) -> int:
        """F, the width of every representation."""
        return class_means.common("features", [x.num_features for x in self.own.tasks])

    def init(self, num_clients: int, seed: int) -> State:
        """New models; no prototypes."""
        models = self.own.init(num_clients, seed)
        memory = self.local.memory(self.joint.trainable(models), num_clients)
        prototypes = class_means.empty(self.num_classes, self.num_features, self.task)
        return State(models, prototypes, memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Clients train towards the prototypes; the server averages their new class means."""
        state, uploaded, held = self.train_clients(state, cohort)
        return state._replace(prototypes=class_means.average(state.prototypes, uploaded, held))

    def train_clients(self, state: Any, cohort: Cohort) -> tuple[Any, Tensor, Tensor]:
        """(state with trained models, uploaded class means [C, L, F], which were sent [C, L]).

        The last one is bool, in host memory.
        """
        counts = class_means.counts(cohort, self.num_classes)
        held, own = counts > 0, tree.take(state.models, cohort.host_ids)
        prototypes = class_means.send(cohort, state.prototypes, held)
        trained, memory = self.fit(cohort, own, state.memory, prototypes)
        after = state._replace(models=cohort.put(state.models, trained), memory=memory)
        return after, self.collect_means(trained, counts, cohort), held

    def loss(self, model: Params, task: Task, prototypes: ClassMeans, batch: Batch) -> Tensor:
        """The client's loss plus the distance of its representations to the prototypes -> []"""
        features = represent(model, task, batch)
        logits = task.head_logits(task.split(model)[1], features, batch)
        losses = nll(log_probs(logits), batch.y, task.class_weights)
        prototype, known = prototypes.of(batch.y)
        away = (features - prototype).square().mean(-1)
        return batch.mean(losses + self.lam * torch.where(known, away, 0))

    def by_prototypes(self, state: Any, cohort: Cohort) -> Nearest:
        """Each client's own model, and all prototypes."""
        values, known = state.prototypes
        prototypes = cohort.held(ClassMeans(values, cohort.tensor(known)))
        return Nearest(*self.personalise(state, cohort), prototypes)

    def predict(self, personal: Own | Nearest, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        if isinstance(personal, Own):
            return ClassStatistics.predict(self, personal, batch)
        return nearest(represent(personal.model, personal.task, batch), personal.prototypes)


def nearest(features: Tensor, prototypes: ClassMeans) -> Tensor:
    """Log-softmax of the negative squared distances to the prototypes -> [B, L]

    A class without a prototype gets the largest distance plus 1, so it is never the nearest and its
    loss is finite. If no class has a prototype, all are equally probable.

    Args:
      features: [B, F].
    """
    distances = (features.unsqueeze(1) - prototypes.values).square().sum(-1)
    beyond = torch.where(prototypes.known, distances, 0).amax(-1, keepdim=True) + 1
    return torch.where(prototypes.known, -distances, -beyond).log_softmax(-1)
