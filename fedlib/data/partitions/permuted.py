"""Clients whose labels are permuted, in one of a few ways; the permutations are the true clusters.

The training examples are dealt evenly at random, and every cluster has a random permutation of the
labels for all examples of its clients. `Federation.cluster` has the cluster of each client.

Source: F. Sattler, K.-R. Mueller, W. Samek, "Clustered Federated Learning", 2019
  (arXiv:1910.01991), as used in Reisser et al., "Federated Mixture of Experts" (FedMix);
  FedMix's README, section 5.5.
Deviation: the paper tests every client on the whole test set. Here every cluster has a copy of it,
  dealt evenly to its clients, so that a test example counts once per cluster and not once per
  client: an example has one owner in this package, and a copy for each of twenty clients would
  take 600 MB. The mean over the clients of a cluster is still one over the whole test set.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedlib import streams
from fedlib.data import official
from fedlib.data.checks import check_multiple
from fedlib.data.examples import Dealt, Examples
from fedlib.data.official import Official, Owners
from fedlib.errors import ConfigError


@dataclass(frozen=True)
class Permuted(Official):
    """The owner and the new label of each example.

    Attributes:
      num_clients: C, equally many in each cluster.
      num_clusters: number of permutations, all different.
      train_examples, test_examples: of every client; None for as many as possible.
    """

    num_clients: int
    num_clusters: int
    train_examples: int | None = None
    test_examples: int | None = None

    def __post_init__(self):
        """Raises ConfigError for an invalid parameter."""
        super().__post_init__()
        check_multiple("num_clients", self.num_clients, self.num_clusters, ", the clusters")

    def deal(self, examples: Examples, seed: int) -> Dealt:
        """The clients, and the cluster of each."""
        parts = examples.by_part()
        cluster, owners = self.clusters(seed), self.owners(parts, seed)
        # The training part, then one copy of the test part for each cluster.
        train, test = official.halves(parts)
        rows = np.concatenate([train, np.tile(test, self.num_clusters)])
        pool = parts.take(rows)._replace(class_name=None)  # a label means another class elsewhere
        ways = self.permutations(parts.num_classes, seed)
        for client, rows in enumerate(map(np.concatenate, zip(*owners, strict=True))):
            pool.y[rows] = ways[cluster[client]][pool.y[rows]]
        return self.assemble(pool, owners, seed, cluster=cluster)

    def clusters(self, seed: int) -> np.ndarray:
        """The cluster of each client -> [C] int64"""
        draw = streams.generator(seed, "permuted", "clusters")
        return draw.permutation(np.arange(self.num_clients) % self.num_clusters)

    def permutations(self, num_classes: int, seed: int) -> np.ndarray:
        """The new label for each label, in each cluster -> [num_clusters, L] int64

        Raises:
          ConfigError: if the labels have fewer permutations.
        """
        if self.num_clusters > math.factorial(num_classes):
            raise ConfigError(
                f"num_clusters must be at most {math.factorial(num_classes)}, the number of "
                f"permutations of {num_classes} classes, got {self.num_clusters}"
            )
        draw = streams.generator(seed, "permuted", "labels")
        ways: dict[tuple[int, ...], None] = {}  # a set that keeps its order
        while len(ways) < self.num_clusters:
            ways[tuple(draw.permutation(num_classes).tolist())] = None
        return np.array(list(ways))

    def owners(self, parts: Examples, seed: int) -> Owners:
        """Rows of each client in the training part, followed by a test part per cluster.

        Raises:
          ConfigError: if there are too few examples.
        """
        rows, of_test = official.halves(parts)
        draw = streams.generator(seed, "permuted", "train")
        train = official.deal_evenly("train", rows, self.num_clients, self.train_examples, draw)
        test, cluster = [np.empty(0, np.int64)] * self.num_clients, self.clusters(seed)
        for number in range(self.num_clusters):
            clients, copy = np.flatnonzero(cluster == number), of_test + number * len(of_test)
            draw = streams.generator(seed, "permuted", "test", number)
            dealt = official.deal_evenly("test", copy, len(clients), self.test_examples, draw)
            for client, own in zip(clients, dealt, strict=True):
                test[client] = own
        return Owners(list(train), test)
