"""MNIST with its training and test images kept apart, pixels in [0, 1].

Source: specification section 5 of FedMix; the raw files are those of `fedlib.data.mnist`.
"""

from pathlib import Path

import numpy as np

from fedlib.data import mnist
from fedlib.data.official import Parts
from fedlib.data.raw import RawFile

NUM_CLASSES = mnist.NUM_CLASSES
MEAN, STD = (0.0,), (1.0,)  # of x / 255


def sources(**params: object) -> tuple[RawFile, ...]:
    """The four official files, whatever the parameters."""
    return mnist.sources()


def read(raw: Path) -> Parts:
    """Images [70000, 1, 28, 28] uint8 and labels int64, from the raw files below `raw`.

    Raises:
      DataError: if a raw file is missing or not the official one.
    """
    train, test = mnist.read(raw)
    x, y = (np.concatenate(part) for part in zip(train, test, strict=True))
    return Parts(x, y, len(train[1]), NUM_CLASSES, MEAN, STD)
