"""CIFAR-100: 60,000 colour images of 32 x 32 pixels, 100 classes in 20 superclasses of five.

The training set comes first, then the test set. The superclass of each class follows from the two
kinds of labels in the files.

Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009;
  https://www.cs.toronto.edu/~kriz/cifar.html, python version.
"""

from pathlib import Path

import numpy as np

from fedlib.data import cifar_batch, downloads
from fedlib.data.examples import TEST, TRAIN, Examples

NUM_CLASSES = 100
HAS = ("classes", "coarse", "images", "part")
MEAN = (0.4914, 0.4822, 0.4465)  # CIFAR-10's, as in the papers; pFedMM's README, section 3.7
STD = (0.2023, 0.1994, 0.2010)


def read(raw: Path) -> Examples:
    """Images [60000, 3, 32, 32] uint8, from the raw files below `raw`.

    Raises:
      DataError: if a raw file is missing or not the official one.
    """
    files, labels = downloads.files("cifar100").values(), ("fine_labels", "coarse_labels")
    train, test = (cifar_batch.parse(file.read(raw), *labels) for file in files)
    x, fine, coarse = (np.concatenate(part) for part in zip(train, test, strict=True))
    part = np.repeat(np.array([TRAIN, TEST], np.uint8), [len(train[1]), len(test[1])])
    superclass = np.unique(np.stack([fine, coarse], axis=1), axis=0)[:, 1]
    return Examples(x, fine, NUM_CLASSES, MEAN, STD, part=part, coarse=superclass)
