"""Optical digits: 1,797 images of 8 x 8 pixels from scikit-learn; no raw files.

It is small enough for the demo and the tests: every paper's workflow runs on it without a download.
Every fourth image of a class is in the test part; this is our choice, because scikit-learn has no
parts.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
  Repository, 1998 (its test set), as `sklearn.datasets.load_digits` ships it.
"""

from pathlib import Path

import numpy as np

from fedlib.data.examples import TEST, TRAIN, Examples

NUM_CLASSES = 10
HAS = ("classes", "images", "part", "ten_classes")
MEAN, STD = (0.5,), (0.5,)  # ours, not measured: no paper uses this data set
GREY_LEVELS = 16  # a pixel counts the ink in a 4 x 4 block
TEST_EVERY = 4


def read(raw: Path) -> Examples:
    """Images [1797, 1, 8, 8] uint8, 0 is paper and 255 ink; `raw` is not read."""
    from sklearn.datasets import load_digits  # a slow import that only this data set needs

    digits = load_digits()
    x = np.rint(digits.images * (255 / GREY_LEVELS)).astype(np.uint8)
    y = digits.target.astype(np.int64)
    return Examples(x[:, None], y, NUM_CLASSES, MEAN, STD, part=set_aside(y))


def set_aside(labels: np.ndarray) -> np.ndarray:
    """`TEST` for every fourth example of each class, `TRAIN` for the others -> [M] uint8"""
    part = np.full(len(labels), TRAIN, np.uint8)
    for label in np.unique(labels):
        part[np.flatnonzero(labels == label)[TEST_EVERY - 1 :: TEST_EVERY]] = TEST
    return part
