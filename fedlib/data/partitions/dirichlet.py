"""Clients with Dirichlet shares of every group of labels.

Source: pFedMM and FedEM (Marfoq et al., NeurIPS 2021), data preparation of the official code;
  pFedMM's README, section 3.3.
"""

import random
from dataclasses import dataclass

import numpy as np

from fedlib.data.draws import as_rows, chunks, dirichlet, subset
from fedlib.data.examples import Examples
from fedlib.data.joined import Joined
from fedlib.errors import ConfigError


@dataclass(frozen=True)
class Dirichlet(Joined):
    """Each group of labels is dealt to the clients in Dirichlet proportions (section 3.3).

    For the fractions see `Joined`.

    Attributes:
      num_clients: C.
      alpha: concentration; small is heterogeneous, 1e6 is practically uniform.
      num_groups: number of random groups of labels (3 on CIFAR-10; the code's n_components), or
        None for one group per label.
      min_examples: clients with fewer are left empty. A small alpha gives some clients only one or
        two examples, too few to train batch normalisation.
    """

    NEEDS = ("classes",)

    num_clients: int
    alpha: float
    num_groups: int | None = None
    min_examples: int = 1

    def owners(self, examples: Examples, seed: int) -> list[np.ndarray]:
        """Rows owned by each client, group by group; a client may own none -> [C] arrays"""
        draw, numpy_draw = random.Random(seed), np.random.RandomState(seed)
        group_of = self._groups(draw, examples.y)
        members = [[] for _ in range(max(group_of.values()) + 1)]
        for row in subset(draw, len(examples.y), self.fraction, self.num_clients):
            members[group_of[int(examples.y[row])]].append(row)
        clients = [[] for _ in range(self.num_clients)]
        for rows in members:
            draw.shuffle(rows)
            shares = dirichlet(numpy_draw, self.alpha, self.num_clients)
            counts = numpy_draw.multinomial(len(rows), shares)
            for client, part in zip(clients, np.split(rows, np.cumsum(counts)[:-1]), strict=True):
                client.extend(part)
        return as_rows([rows if len(rows) >= self.min_examples else [] for rows in clients])

    def _groups(self, draw: random.Random, labels: np.ndarray) -> dict[int, int]:
        order = list(range(int(labels.max()) + 1))
        num_groups = len(order) if self.num_groups is None else self.num_groups
        if num_groups > len(order):
            raise ConfigError(
                f"num_groups must be at most the {len(order)} labels of the data, got {num_groups}"
            )
        draw.shuffle(order)
        groups = chunks(order, num_groups)
        return {label: group for group, chunk in enumerate(groups) for label in chunk}
