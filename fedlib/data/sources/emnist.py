"""EMNIST ByClass: 814,255 handwritten characters of 28 x 28 pixels in 62 classes.

Labels are 0-9, A-Z, a-z in this order. The images stay transposed, as in the official files
(pFedMM's README, section 3.7). The training set comes first, then the test set. If the test set is
read alone, every sixth image is in the test part, and the others are in the training part.

Source: G. Cohen, S. Afshar, J. Tapson, A. van Schaik, "EMNIST: an extension of MNIST to handwritten
  letters", 2017 (arXiv:1702.05373); https://www.nist.gov/itl/products-and-services/emnist-dataset.
"""

from pathlib import Path

import numpy as np

from fedlib.data import downloads, idx
from fedlib.data.examples import TEST, TRAIN, Examples

NUM_CLASSES = 62
HAS = {"all": ("classes", "images", "part"), "test": ("classes", "images", "part")}
TEST_EVERY = 6  # ours, about the share of the official test set in the whole
MEAN, STD = (0.1307,), (0.3081,)  # MNIST's; pFedMM's README, section 3.7


def read(raw: Path, *, source: str = "all") -> Examples:
    """Images [814255, 1, 28, 28] uint8, from the raw files below `raw`.

    Args:
      raw: folder of raw files.
      source: "all" for the official training and test set, as in the papers; "test" for the 116,323
        images of the official test set, still more than the 81,425 that pFedMM samples from "all"
        (its README, section 3.2).

    Raises:
      ConfigError: for an unknown source.
      DataError: if a raw file is missing or not the official one.
    """
    parts = idx.parts(downloads.files("emnist", source), raw)
    x, y = (np.concatenate(part) for part in zip(*parts.values(), strict=True))
    part = np.full(len(y), TRAIN, np.uint8)
    if "train" in parts:
        part[len(parts["train"][1]) :] = TEST
    else:
        part[TEST_EVERY - 1 :: TEST_EVERY] = TEST
    return Examples(x, y, NUM_CLASSES, MEAN, STD, part=part)
