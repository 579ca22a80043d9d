"""CIFAR-100: 60,000 colour images of 32 x 32 pixels, 100 classes in 20 superclasses of five.

The training set comes first, then the test set. The superclass of each class, which partition
"pachinko" needs, is read off the two kinds of labels in the files.

Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009;
  https://www.cs.toronto.edu/~kriz/cifar.html, python version. The MD5 of the archive is the
  author's, those of its members are the ones torchvision checks (specification section 3.1), and
  the SHA-256 of the archive is the one Keras checks.
"""

from pathlib import Path

import numpy as np

from fedlib.data import cifar_batch
from fedlib.data.cut import Scheme
from fedlib.data.raw import RawFile
from fedlib.errors import DataError
from fedlib.federation import Federation

NUM_CLASSES = 100
MEAN = (0.4914, 0.4822, 0.4465)  # CIFAR-10's, as in the papers; specification section 3.7
STD = (0.2023, 0.1994, 0.2010)

ARCHIVE = RawFile(
    "cifar100/cifar-100-python.tar.gz",
    169_001_437,
    "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    "eb9058c3a382ffc7106e4002c42a8d85",
    ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
)


def _batch(name: str, md5: str) -> RawFile:
    member = f"cifar-100-python/{name}"
    return RawFile(f"cifar100/{member}", None, "", md5, archive=ARCHIVE, member=member)


TRAIN = _batch("train", "16019d7e3df5f24257cddd939b257f8d")
TEST = _batch("test", "f0ef6b0ae62326f3e7ffdfab6717acfc")


def sources(**params: object) -> tuple[RawFile, ...]:
    """The training and the test set, whatever the parameters."""
    return (TRAIN, TEST)


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
    """The federation of a `Scheme` with these values, from the raw files below `raw`."""
    scheme = Scheme(partition, fraction, train_fraction, val_fraction, unseen_fraction, seed)
    train, test = read(raw)
    x, fine, coarse = (np.concatenate(part) for part in zip(train, test, strict=True))
    return scheme.federation(
        x, fine, num_classes=NUM_CLASSES, mean=MEAN, std=STD, coarse=hierarchy(fine, coarse)
    )


def read(raw: Path) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Images [N, 3, 32, 32] uint8, classes and superclasses [N] int64 of the two official parts.

    Raises:
      DataError: if a raw file is missing or not the official one.
    """
    return tuple(
        cifar_batch.parse(file.read(raw), file.name, "fine_labels", "coarse_labels")
        for file in sources()
    )


def hierarchy(fine: np.ndarray, coarse: np.ndarray) -> np.ndarray:
    """Superclass of each class, from the labels [N] of all images -> [L] int64

    Raises:
      DataError: if a class has no image, or images of several superclasses.
    """
    pairs = np.unique(np.stack([fine, coarse], axis=1), axis=0)
    if pairs[:, 0].tolist() != list(range(NUM_CLASSES)):
        raise DataError(
            f"every class from 0 to {NUM_CLASSES - 1} must have images, all of one superclass; "
            f"the files have {len(pairs)} pairs of class and superclass"
        )
    return pairs[:, 1]
