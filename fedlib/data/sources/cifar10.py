"""CIFAR-10: 60,000 colour images of 32 x 32 pixels, training batches first, then the test batch.

Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009;
  https://www.cs.toronto.edu/~kriz/cifar.html, python version.
"""

from pathlib import Path

import numpy as np

from fedlib.data import cifar_batch, downloads
from fedlib.data.checks import check_choice
from fedlib.data.examples import TEST, TRAIN, Examples

NUM_CLASSES = 10
HAS = ("classes", "images", "part", "ten_classes")
SCALINGS = {  # mean and deviation of each channel
    # pFedMM's README, section 3.7; FedEM's code, and much other code.
    "standard": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    # EricssonResearch/fl-moe, specification of Adaptive Expert Models, section 4.1: deviations over
    # all training pixels.
    "measured": ((0.4915, 0.4822, 0.4466), (0.2470, 0.2435, 0.2616)),
    # ImageNet's; specification of Fed-MoE, section 4.2.
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def read(raw: Path, *, scaling: str = "standard") -> Examples:
    """Images [60000, 3, 32, 32] uint8, from the raw files below `raw`.

    Args:
      raw: folder of raw files.
      scaling: one of `SCALINGS`.

    Raises:
      ConfigError: for another scaling.
      DataError: if a raw file is missing or not the official one.
    """
    check_choice("scaling", scaling, SCALINGS)
    files = downloads.files("cifar10").values()
    batches = [cifar_batch.parse(file.read(raw), "labels") for file in files]
    x, y = (np.concatenate(part) for part in zip(*batches, strict=True))
    part = np.full(len(y), TRAIN, np.uint8)
    part[len(y) - len(batches[-1][1]) :] = TEST
    return Examples(x, y, NUM_CLASSES, *SCALINGS[scaling], part=part)
