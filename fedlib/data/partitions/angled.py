"""Images rotated by one of eight angles; each client has its own distribution over the angles.

Every image, training or test, is rotated once, by an angle drawn for it; `Federation.side` has the
number of the angle. Interpolation is bilinear, and pixels from outside the image are 0.

Source: Reisser et al., "Federated Mixture of Experts" (FedMix); FedMix's README, section 5.4.
"""

from dataclasses import dataclass

import numpy as np

from fedlib import streams
from fedlib.data import official
from fedlib.data.draws import dirichlet
from fedlib.data.examples import Dealt, Examples
from fedlib.data.official import Equal, Owners
from fedlib.data.partitions import hsu

ANGLES = tuple(range(0, 360, 45))  # degrees, anticlockwise


@dataclass(frozen=True)
class Angled(Equal):
    """The owner and the rotation of each image.

    Attributes:
      alpha: of the Dirichlet distribution over the angles, see `hsu.Hsu`.
      label_alpha: likewise, over the classes; None deals the examples regardless of class.
    """

    needs = ("classes", "images", "part")

    alpha: float
    label_alpha: float | None = None

    def deal(self, examples: Examples, seed: int) -> Dealt:
        """The clients, and the number of each image's angle as side information."""
        official.check_square(examples.x)
        parts = examples.by_part()
        owners = self.owners(parts, seed)
        side = self.side(owners, len(parts.y), seed)
        x = parts.x.copy()
        for number, angle in enumerate(ANGLES):
            x[side == number] = turn(parts.x[side == number], angle)
        return self.assemble(parts._replace(x=x), owners, seed, side=side)

    def owners(self, parts: Examples, seed: int) -> Owners:
        """Rows of each client; see `Official.owners`."""
        sizes = self.train_examples, self.test_examples
        if self.label_alpha is not None:
            return hsu.Hsu(self.num_clients, *sizes, alpha=self.label_alpha).owners(parts, seed)
        owned = []
        for part, rows, size in zip(("train", "test"), official.halves(parts), sizes, strict=True):
            draw = streams.generator(seed, "angled", part)
            owned.append(list(official.deal_evenly(part, rows, self.num_clients, size, draw)))
        return Owners(*owned)

    def side(self, owners: Owners, num: int, seed: int) -> np.ndarray:
        """Number of the angle of each of `num` examples, 0 for those without an owner -> [num]"""
        draw = streams.generator(seed, "angled", "shares")
        each = self.alpha / len(ANGLES)
        shares = [dirichlet(draw, each, len(ANGLES)) for _ in range(self.num_clients)]
        side = np.zeros(num, np.int64)
        for client, rows in enumerate(zip(*owners, strict=True)):
            draw = streams.generator(seed, "angled", client)
            for part in rows:
                side[part] = draw.choice(len(ANGLES), len(part), p=shares[client])
        return side


def turn(x: np.ndarray, angle: int) -> np.ndarray:
    """Images [N, F, H, H] rotated by one of `ANGLES` -> [N, F, H, H]; exact for multiples of 90."""
    quarters, rest = divmod(angle, 90)
    if rest:
        from scipy import ndimage  # a slow import that only this needs

        x = ndimage.rotate(x, rest, axes=(2, 3), reshape=False, order=1)
    return np.rot90(x, quarters, axes=(2, 3))
