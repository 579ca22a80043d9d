"""Clients that are groups of writers; the last writers belong to a server and a probe.

The writers keep the order of the data set: first the clients' groups, then the writers of the
server, then those of the probe. A client trains on its writers' training examples, except for some
that the server validates on. The server trains on the training examples of its own writers, and
tests on the clients' test examples. The probe has all examples of its writers.

Source: J. Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
  IJCAI 2025 (Fed-MoE), FEMNIST, and the data preparation of its code; Fed-MoE's README,
  sections 0 and 4.1.
Deviation: the server's examples are of a few writers, as in the code; the paper draws them from all
  data. The server has the stated number of writers, and not one less; LEAF's writers are in
  alphabetical order, not in that of its files, of which the code reads the first 35.
"""

from dataclasses import dataclass

import numpy as np

from fedlib import streams
from fedlib.data.checks import Checked
from fedlib.data.examples import TEST, TRAIN, Dealt, Examples
from fedlib.data.reserved import assemble
from fedlib.errors import ConfigError, DataError


@dataclass(frozen=True)
class WriterGroups(Checked):
    """The owner of each example.

    Attributes:
      num_clients: C.
      writers_per_client: of every client.
      server_writers: number of writers in the server's training data.
      probe_writers: number of writers in the probe's data; 0 for no probe: models are then measured
        with the server's training examples, as in the paper.
      val_fraction: fraction of each client writer's training examples, rounded down, that the
        server validates on; 0 for none.
      server_examples: number of random training examples of the server's writers; None for all.
    """

    needs = ("owner", "part")

    num_clients: int
    writers_per_client: int
    server_writers: int
    probe_writers: int = 1
    val_fraction: float = 0.1
    server_examples: int | None = None

    def deal(self, examples: Examples, seed: int) -> Dealt:
        """The clients, then the server, then the probe if there is one.

        Raises:
          DataError: if there are too few writers.
          ConfigError: if the server's writers have too few examples.
        """
        train, test = examples.of_owner(TRAIN), examples.of_owner(TEST)
        reserved = self.server_writers + self.probe_writers
        of_clients = self.num_clients * self.writers_per_client
        if of_clients + reserved > examples.num_owners:
            raise DataError(
                f"{self.num_clients} clients of {self.writers_per_client} writers and {reserved} "
                f"writers of server and probe are asked for, but only {examples.num_owners} "
                "writers are there"
            )
        kept, val = zip(*[self._halves(train[w], seed, w) for w in range(of_clients)], strict=True)
        groups = [
            np.concatenate(kept[first : first + self.writers_per_client])
            for first in range(0, of_clients, self.writers_per_client)
        ]
        first = examples.num_owners - reserved  # of the server's writers
        server = self._some(np.concatenate(train[first : first + self.server_writers]), seed)
        last = examples.of_owner()[first + self.server_writers :]
        of_server = server, np.concatenate(val), np.concatenate(test[:of_clients])
        return assemble(examples, groups, of_server, np.concatenate(last) if last else None)

    def _halves(self, rows: np.ndarray, seed: int, writer: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of one of a client's writers: for its training, and for the server's validation."""
        num_val = int(self.val_fraction * len(rows) + 1e-9)
        order = streams.generator(seed, self.kind, "val", writer).permutation(len(rows))
        return rows[np.sort(order[num_val:])], rows[np.sort(order[:num_val])]

    def _some(self, rows: np.ndarray, seed: int) -> np.ndarray:
        """`server_examples` of these rows, in ascending order."""
        if self.server_examples is None:
            return rows
        if self.server_examples > len(rows):
            raise ConfigError(
                f"server_examples is {self.server_examples}, but the {self.server_writers} writers "
                f"of the server have {len(rows)} training examples; take more server_writers"
            )
        draw = streams.generator(seed, self.kind, "server")
        return np.sort(draw.choice(rows, self.server_examples, replace=False))
