"""MNIST: 70,000 handwritten digits of 28 x 28 pixels, the training set first, then the test set.

Source: Y. LeCun, C. Cortes, C. J. C. Burges, http://yann.lecun.com/exdb/mnist/. The MD5 values are
  those torchvision checks.
"""

from pathlib import Path

import numpy as np

from fedlib.data import idx
from fedlib.data.cut import Scheme
from fedlib.data.raw import RawFile
from fedlib.federation import Federation

NUM_CLASSES = 10
MEAN, STD = (0.1307,), (0.3081,)  # of the training set; specification section 3.7

# The author's site has refused automated downloads for years, so it stands last.
SITES = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")


def _file(name: str, size: int, sha256: str, md5: str) -> RawFile:
    urls = tuple(site + name for site in SITES)
    return RawFile(f"mnist/raw/{name}", size, sha256, md5, urls)


TRAIN_IMAGES = _file(
    "train-images-idx3-ubyte.gz",
    9_912_422,
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
)
TRAIN_LABELS = _file(
    "train-labels-idx1-ubyte.gz",
    28_881,
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "d53e105ee54ea40749a09fcbcd1e9432",
)
TEST_IMAGES = _file(
    "t10k-images-idx3-ubyte.gz",
    1_648_877,
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "9fb629c4189551a2d022fa330f9573f3",
)
TEST_LABELS = _file(
    "t10k-labels-idx1-ubyte.gz",
    4_542,
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    "ec29112dd5afa0611ce80d1b7f02629c",
)


def sources(**params: object) -> tuple[RawFile, ...]:
    """The four official files, whatever the parameters."""
    return (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)


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
    return scheme.federation(*_read(raw), num_classes=NUM_CLASSES, mean=MEAN, std=STD)


def _read(raw: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images [70000, 1, 28, 28] uint8 and labels [70000] int64."""
    train = idx.images(TRAIN_IMAGES.read(raw), TRAIN_LABELS.read(raw), "MNIST training")
    test = idx.images(TEST_IMAGES.read(raw), TEST_LABELS.read(raw), "MNIST test")
    return np.concatenate([train[0], test[0]]), np.concatenate([train[1], test[1]])
