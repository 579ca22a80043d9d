"""Clients whose images are all rotated by the client's angle; the angles are the true clusters.

`Federation.cluster` has the number of each client's angle. Every angle has its own copy of the
whole data set, dealt to its clients, so each image occurs once per angle. Clients come in blocks,
one per angle.

Source: A. Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020
  (jichan3751/ifca), as used in Isaksson et al., FL-IJCAI 2022 (EricssonResearch/fl-moe);
  the README of Adaptive Expert Models, section 4.2.
Deviation: seeded.
"""

from dataclasses import dataclass

import numpy as np

from fedlib import streams
from fedlib.data import official
from fedlib.data.checks import check_multiple
from fedlib.data.examples import Dealt, Examples
from fedlib.data.official import Official, Owners
from fedlib.errors import ConfigError

ANGLES = (0, 90, 180, 270)  # degrees, anticlockwise


@dataclass(frozen=True)
class Rotated(Official):
    """The owner of each example in the result of `pool`.

    Attributes:
      num_clients: C, equally many for each angle.
      rotations: angles in degrees, some of `ANGLES`; (0,) rotates nothing.
      train_examples, test_examples: of every client; None for as many as possible.
    """

    needs = ("images", "part")

    num_clients: int
    rotations: tuple[int, ...] = (0, 180)
    train_examples: int | None = None
    test_examples: int | None = None

    def __post_init__(self):
        """Raises ConfigError for an invalid parameter."""
        super().__post_init__()
        angles = list(self.rotations)
        if not angles or len({*angles}) < len(angles) or not {*angles} <= {*ANGLES}:
            raise ConfigError(
                f"rotations must be different angles out of {', '.join(map(str, ANGLES))}, "
                f"got {angles}"
            )
        check_multiple("num_clients", self.num_clients, len(angles), ", the rotations")

    def deal(self, examples: Examples, seed: int) -> Dealt:
        """The clients, and the number of each client's angle as its true cluster."""
        if {90, 270} & {*self.rotations}:
            official.check_square(examples.x)
        parts = examples.by_part()
        number = np.arange(len(self.rotations))
        cluster = np.repeat(number, self.num_clients // len(number))
        return self.assemble(self.pool(parts), self.owners(parts, seed), seed, cluster=cluster)

    def pool(self, parts: Examples) -> Examples:
        """All images [M, F, H, H], once per angle -> angles * M examples"""
        turned = [np.rot90(parts.x, angle // 90, axes=(2, 3)) for angle in self.rotations]
        y = np.tile(parts.y, len(self.rotations))
        return parts._replace(x=np.concatenate(turned), y=y, part=None, owner=None)

    def owners(self, parts: Examples, seed: int) -> Owners:
        """Rows of each client in the result of `pool`.

        Raises:
          ConfigError: if there are too few examples.
        """
        owners, clients = Owners([], []), self.num_clients // len(self.rotations)
        sizes, halves = (self.train_examples, self.test_examples), official.halves(parts)
        for number, angle in enumerate(self.rotations):
            start, each = number * len(parts.y), (owners._fields, halves, sizes, owners)
            for part, rows, size, owned in zip(*each, strict=True):
                draw = streams.generator(seed, "rotated", part, angle)
                owned.extend(official.deal_evenly(part, start + rows, clients, size, draw))
        return owners
