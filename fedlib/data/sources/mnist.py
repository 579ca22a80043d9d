"""MNIST: 70,000 handwritten digits of 28 x 28 pixels, the training set first, then the test set.

Source "qmnist" also has the writer of each digit: 539 writers of the training set and 297 others of
the test set.

Source: Y. LeCun, C. Cortes, C. J. C. Burges, http://yann.lecun.com/exdb/mnist/; the writers from
  C. Yadav, L. Bottou, "Cold Case: The Lost MNIST Digits", NeurIPS 2019,
  https://github.com/facebookresearch/qmnist, whose first rows describe MNIST's own images.
"""

from pathlib import Path

import numpy as np

from fedlib.data import downloads, idx
from fedlib.data.checks import check_choice
from fedlib.data.examples import TEST, TRAIN, Examples

NUM_CLASSES = 10
HAS = {
    "mnist": ("classes", "images", "part", "ten_classes"),
    "qmnist": ("classes", "images", "owner", "part", "ten_classes"),
}
SCALINGS = {  # mean and deviation
    "standard": ((0.1307,), (0.3081,)),  # of the training set; pFedMM's README, section 3.7
    "unit": ((0.0,), (1.0,)),  # pixels in [0, 1]
}
WRITER = 2  # column of QMNIST's labels


def read(raw: Path, *, source: str = "mnist", scaling: str = "standard") -> Examples:
    """Images [70000, 1, 28, 28] uint8, from the raw files below `raw`.

    Args:
      raw: folder of raw files.
      source: "qmnist" with writers, "mnist" without.
      scaling: one of `SCALINGS`.

    Raises:
      ConfigError: for an invalid value.
      DataError: if a raw file is missing or not the official one.
    """
    check_choice("scaling", scaling, SCALINGS)
    files = downloads.files("mnist", source)
    parts = idx.parts(files, raw)
    x, y = (np.concatenate(part) for part in zip(*parts.values(), strict=True))
    sizes = [len(labels) for _, labels in parts.values()]
    names, owner = (), None
    if source == "qmnist":
        named = [  # QMNIST's test set goes on after MNIST's
            idx.parse(files[f"{name}_writers"].read(raw))[:size, WRITER]
            for name, size in zip(parts, sizes, strict=True)
        ]
        names, owner = np.unique(np.concatenate(named), return_inverse=True)
    part = np.repeat(np.array([TRAIN, TEST], np.uint8), sizes)
    return Examples(x, y, NUM_CLASSES, *SCALINGS[scaling], part, owner, len(names))
