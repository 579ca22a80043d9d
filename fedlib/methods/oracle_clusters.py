"""Oracle clusters: FedAvg inside the true clusters, which a real server does not know.

A reference for methods that find clusters: the result with perfect clusters.

Source: a reference of ours; Algorithm 1 of McMahan et al., AISTATS 2017, once for each cluster.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.parts import Total
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Params
from fedlib.errors import DataError
from fedlib.methods.base import Method, Range


class State(NamedTuple):
    """One model per true cluster, and the memory of the clients' solvers."""

    by_cluster: Params  # [K, ...]
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class OracleClusters(Method):
    """One model for each true cluster of the federation.

    Absent clients have no weight, whatever the run's `aggregation` is.

    Attributes:
      local: local solver, run once per round.
      num_clusters: K, at least 1, which is FedAvg.
    """

    num_clusters: int

    look = "Known clusters", "#228833", (5, 0, 18), "long"
    ranges: ClassVar = {"num_clusters": Range(1)}

    def init(self, num_clients: int, seed: int) -> State:
        """The same new model for every cluster."""
        params = self.task.init(seed)
        memory = self.local.memory(self.task.trainable(params), num_clients)
        return State(tree.repeat(params, self.num_clusters), memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Send each client its cluster's model; train; average within clusters."""
        cluster = self.clusters(cohort)

        def returns(part: Cohort, trained: Params) -> list[Total]:
            own = self.clusters(part)
            return [part.total(trained, own == number) for number in range(self.num_clusters)]

        start = cohort.scatter(tree.take(state.by_cluster, cohort.tensor(cluster)))
        sent, memory = cohort.fit(
            self.task.loss, start, local=self.local, memory=state.memory, returns=returns
        )
        cohort.collect(sent[0])  # a client returns one model
        pairs = zip(sent, tree.unstack(state.by_cluster), strict=True)
        return State(tree.stack([new.mean() if new.weight else old for new, old in pairs]), memory)

    def clusters(self, cohort: Cohort) -> np.ndarray:
        """The true cluster of each client -> [C] int64

        Raises:
          DataError: if the federation has no true clusters, or more than `num_clusters`.
        """
        if (cluster := cohort.data.federation.cluster) is None:
            raise DataError("oracle_clusters needs true clusters, which this federation lacks")
        if cluster.max() >= self.num_clusters:
            raise DataError(
                f"num_clusters must be at least {cluster.max() + 1}, the number of true clusters, "
                f"got {self.num_clusters}"
            )
        return cluster[cohort.host_ids]

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The model of each client's true cluster, for seen and unseen clients."""
        return tree.take(state.by_cluster, cohort.tensor(self.clusters(cohort)))
