"""Optical digits: 1,797 images of 8 x 8 pixels that come with scikit-learn; no raw files.

Small enough for the demo and the tests: every paper's workflow runs on it without a download.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
  Repository, 1998 (its test set), as `sklearn.datasets.load_digits` ships it.
"""

from pathlib import Path

import numpy as np

from fedlib.data.cut import Scheme
from fedlib.data.raw import RawFile
from fedlib.federation import Federation

NUM_CLASSES = 10
MEAN, STD = (0.5,), (0.5,)  # ours, not measured: no paper uses this data set
GREY_LEVELS = 16  # a pixel counts the ink in a 4 x 4 block


def sources(**params: object) -> tuple[RawFile, ...]:
    """No raw files."""
    return ()


def build(
    raw: Path,
    *,
    partition: dict,
    train_fraction: float,
    seed: int,
    fraction: float = 1.0,
    val_fraction: float = 0.0,
    unseen_fraction: float = 0.0,
) -> Federation:
    """The federation of a `Scheme` with these values; `raw` is not read."""
    scheme = Scheme(partition, fraction, train_fraction, val_fraction, unseen_fraction, seed)
    return scheme.federation(*read(), num_classes=NUM_CLASSES, mean=MEAN, std=STD)


def read() -> tuple[np.ndarray, np.ndarray]:
    """Images [1797, 1, 8, 8] uint8, 0 is paper and 255 ink; labels [1797] int64."""
    from sklearn.datasets import load_digits  # takes a second, and only this data set needs it

    digits = load_digits()
    x = np.rint(digits.images * (255 / GREY_LEVELS)).astype(np.uint8)
    return x[:, None], digits.target.astype(np.int64)
