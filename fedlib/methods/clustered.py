"""Clustered FL: FedAvg within clusters of clients whose updates point the same way.

    client  trains the model of its cluster; its update u is the change of the parameters
    server  splits a cluster in two if its members disagree: the mean update is short
            (||mean u|| < eps1), but some update is long (max ||u|| > eps2); the two parts are by
            complete linkage on the cosines between updates
            averages the models in every cluster

There is one cluster at first; clusters split and never merge.

Source: Sattler et al., "Clustered Federated Learning: Model-Agnostic Distributed Multi-Task
Optimization under Privacy Constraints", IEEE TNNLS 2020.
Official code: omarfoq/FedEM, aggregator.py (ClusteredAggregator), also used by pFedMM. The
method's authors: felisat/clustered-federated-learning.
Deviation: the length of an update for eps2 is its Euclidean norm, unless `max_norm` says otherwise.
As in both codes, and unlike the paper, the parts are by complete linkage (the paper's minimise the
largest similarity across them, which is single linkage), no threshold gamma_max bounds that
similarity, and the mean update is unweighted. When a part of a split cluster splits again, the
official code confuses positions within the cluster with client numbers, so clients end up in two
clusters or none. It never trains or assigns unseen clients; here they get the cluster whose model
has the lowest loss on their train split.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import each_expert
from fedlib.engine.journal import refuse_divergence
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params
from fedlib.errors import ConfigError
from fedlib.methods.base import Method, Range, Uniform


class State(NamedTuple):
    """One model per cluster, each client's cluster, and the memory of the clients' solvers."""

    models: Params  # [E, ...], one model per cluster; E grows
    cluster: Tensor  # [num_clients] int64, in [0, E)
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class ClusteredFL(Method):
    """One model for all clients until they disagree. All clients take part in every round.

    Attributes:
      local: local solver, run once per round.
      eps1: at least 0; a cluster splits only if its mean update is shorter. 0 is FedAvg; the
        official code has 0.4.
      eps2: at least 0; a cluster splits only if some update is longer. The official code has 1.6.
      max_norm: what is compared with eps2: the largest Euclidean norm of an update ("l2", the
        method's authors), or the largest absolute "coordinate" of any (pFedMM's code, whose norm is
        along an axis of length one), which is so much smaller that splits are rare.
    """

    eps1: float = 0.4
    eps2: float = 1.6
    max_norm: str = "l2"

    look = "Clustered FL", "#56B4E9", "D", "long"
    choices: ClassVar = {"max_norm": ("l2", "coordinate")}
    ranges: ClassVar = dict.fromkeys(("eps1", "eps2"), Range(0))
    SPACE: ClassVar = {"eps1": Uniform(0.1, 0.8), "eps2": Uniform(0.8, 3)}
    protocols: ClassVar = {"seen": {"default": "personalise"}, "unseen": {"default": "assign"}}

    def init(self, num_clients: int, seed: int) -> State:
        """All clients in one cluster, with a new model."""
        params = self.task.init(seed)
        memory = self.local.memory(self.task.trainable(params), num_clients)
        cluster = torch.zeros(num_clients, dtype=torch.int64, device=self.task.device)
        return State(tree.repeat(params, 1), cluster, memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Train every cluster's model on its members, split clusters, average within them.

        Raises:
          ConfigError: if only some clients take part; then clusters cannot be compared.
        """
        if cohort.size != cohort.population:
            raise ConfigError(
                "ClusteredFL needs all clients in every round (participation rate 1), got "
                f"{cohort.size} of {cohort.population}"
            )
        start = cohort.scatter(tree.take(state.models, state.cluster[cohort.ids]))
        # All models at once, as a split depends on the updates of all members.
        trained, memory = cohort.fit(self.task.loss, start, local=self.local, memory=state.memory)
        trained = cohort.collect(trained)
        cluster = self.split(state.cluster, cohort.ids, self.updates(start, trained))
        models = self.average(trained, cluster[cohort.ids], state.models, cohort)
        return State(models, cluster, memory)

    def average(self, trained: Params, cluster: Tensor, previous: Params, cohort: Cohort) -> Params:
        """The models averaged in each cluster by numbers of examples -> [E, ...]

        A cluster without members in the cohort keeps its model.

        Args:
          cluster: [C] clusters of the clients that trained.
          previous: [E or fewer, ...]; new clusters have members.
        """
        present = cluster.unique()
        weights = (cluster == present[:, None]) * cohort.num_examples  # [present, C]
        means = tree.combine(trained, weights / weights.sum(1, keepdim=True))
        before = len(tree.leaves(previous)[0])
        rows = torch.arange(max(before, int(present[-1]) + 1), device=cluster.device)
        return tree.put(tree.take(previous, rows.clamp(max=before - 1)), present, means)

    def updates(self, start: Params, trained: Params) -> Tensor:
        """The change of the parameters, without running statistics -> [C, D]"""
        change = tree.sub(self.task.trainable(trained), self.task.trainable(start))
        return torch.cat([x[:, None].flatten(1) for x in tree.leaves(change)], dim=1)

    def split(self, cluster: Tensor, ids: Tensor, updates: Tensor) -> Tensor:
        """`cluster` [num_clients] after all disagreeing clusters are split in two -> same shape

        The part with the lowest client number keeps the cluster's number; the other gets a new one.

        Args:
          ids: [C] numbers of the clients.
          updates: [C, D] of these clients.
        """
        num_clusters = int(cluster.max()) + 1
        for number in range(num_clusters):
            rows = (cluster[ids] == number).nonzero().squeeze(1)
            if self.disagree(updates[rows]):
                part, members = bipartition(updates[rows]), ids[rows]
                leaving = members[part != part[members.argmin()]]
                cluster = cluster.index_fill(0, leaving, num_clusters)
                num_clusters += 1
        return cluster

    def disagree(self, updates: Tensor) -> bool:
        """Whether a cluster with these updates [C, D] must split; clusters of two never do."""
        if len(updates) <= 2:
            return False
        lengths = updates.norm(dim=1) if self.max_norm == "l2" else updates.abs()
        return bool((updates.mean(0).norm() < self.eps1) & (lengths.max() > self.eps2))

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The model of each client's cluster."""
        return tree.take(state.models, state.cluster[cohort.ids])

    def assign(self, state: State, cohort: Cohort) -> Params:
        """The model of lowest loss on each client's train split."""
        losses = cohort.example_mean(cohort.score(self.losses, cohort.held(state.models)))
        when, what = f"by round {cohort.round}", "a cluster's training loss"
        refuse_divergence(losses, cohort.host_ids, when, what)
        return tree.take(state.models, losses.argmin(1))

    def losses(self, models: Params, batch: Batch) -> Tensor:
        """Negative log-likelihood of each example under each cluster's model -> [B, E]"""
        return each_expert(lambda model: self.task.losses(model, batch), models)

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Each client's cluster [num_clients]; unseen clients keep the initial one, 0."""
        return {"choice": state.cluster}


def bipartition(updates: Tensor) -> Tensor:
    """Two groups of similar directions: updates [C, D] -> [C] of 0 and 1"""
    from sklearn.cluster import AgglomerativeClustering  # takes a second to import

    directions = normalize(updates)
    distances = 1 - (directions @ directions.T).double()
    by_distance = AgglomerativeClustering(2, metric="precomputed", linkage="complete")
    return torch.from_numpy(by_distance.fit_predict(distances.cpu().numpy())).to(updates.device)
