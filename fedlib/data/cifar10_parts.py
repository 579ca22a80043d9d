"""CIFAR-10 with its training and test images kept apart, normalised as in Adaptive Expert Models.

Source: EricssonResearch/fl-moe; specification section 4.1. The raw files are those of
`fedlib.data.cifar10`.
"""

from pathlib import Path

import numpy as np

from fedlib.data import cifar10, cifar_batch
from fedlib.data.official import Parts
from fedlib.data.raw import RawFile

NUM_CLASSES = cifar10.NUM_CLASSES
MEAN = (0.4915, 0.4822, 0.4466)
STD = (0.2470, 0.2435, 0.2616)


def sources(**params: object) -> tuple[RawFile, ...]:
    """The five training batches and the test batch, whatever the parameters."""
    return cifar10.sources()


def read(raw: Path) -> Parts:
    """Images [60000, 3, 32, 32] uint8 and labels int64, from the raw files below `raw`.

    Raises:
      DataError: if a raw file is missing or not the official one.
    """
    batches = [cifar_batch.parse(file.read(raw), file.name, "labels") for file in sources()]
    x, y = (np.concatenate(part) for part in zip(*batches, strict=True))
    return Parts(x, y, len(y) - len(batches[-1][1]), NUM_CLASSES, MEAN, STD)
