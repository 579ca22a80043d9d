"""MNIST: 70,000 handwritten digits of 28 x 28 pixels, the training set first, then the test set.

With source "qmnist" it is also known who wrote each digit: 539 writers of the training set and 297
others of the test set, who can be the seen and the unseen clients.

Source: Y. LeCun, C. Cortes, C. J. C. Burges, http://yann.lecun.com/exdb/mnist/; the writers from
  C. Yadav, L. Bottou, "Cold Case: The Lost MNIST Digits", NeurIPS 2019,
  https://github.com/facebookresearch/qmnist, whose first rows describe MNIST's own images. The MD5
  values are those torchvision checks.
"""

from pathlib import Path

import numpy as np

from fedlib.data import idx
from fedlib.data.cut import Scheme
from fedlib.data.raw import RawFile
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Federation

NUM_CLASSES = 10
MEAN, STD = (0.1307,), (0.3081,)  # of the training set; specification section 3.7

SOURCES = ("mnist", "qmnist")
UNSEEN = ("fraction", "test_writers")
CLASS, WRITER = 0, 2  # columns of QMNIST's labels

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


def _writers(name: str, size: int, sha256: str, md5: str) -> RawFile:
    url = f"https://raw.githubusercontent.com/facebookresearch/qmnist/master/{name}"
    return RawFile(f"mnist/raw/{name}", size, sha256, md5, (url,))


TRAIN_WRITERS = _writers(
    "qmnist-train-labels-idx2-int.gz",
    463_024,
    "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
    "0058f8dd561b90ffdd0f734c6a30e5e4",
)
TEST_WRITERS = _writers(
    "qmnist-test-labels-idx2-int.gz",
    526_800,
    "9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06",
    "5b5b05890a5e13444e108efe57b788aa",
)


def sources(**params: object) -> tuple[RawFile, ...]:
    """The four official files, and those that name the writers for `params["source"]` "qmnist"."""
    images = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)
    if _check_source(params.get("source", "mnist")) == "mnist":
        return images
    return (*images, TRAIN_WRITERS, TEST_WRITERS)


def build(
    raw: Path,
    *,
    partition: dict,
    train_fraction: float,
    seed: int,
    source: str = "mnist",
    unseen: str = "fraction",
    fraction: float = 1.0,
    val_fraction: float = 0.0,
    unseen_fraction: float = 0.0,
) -> Federation:
    """The federation of a `Scheme` with these values, from the raw files below `raw`.

    Args:
      raw: folder of raw files.
      partition, fraction, train_fraction, val_fraction, unseen_fraction, seed: see `Scheme`.
      source: "qmnist" names the writers, for partition "writer"; "mnist" does without.
      unseen: "fraction" draws `unseen_fraction` of the clients; "test_writers" sets the writers of
        the official test set apart, and needs partition "writer".

    Raises:
      ConfigError: for a value that makes no sense.
      DataError: if a raw file is missing or not the official one.
    """
    scheme = Scheme(partition, fraction, train_fraction, val_fraction, unseen_fraction, seed)
    _check_source(source)
    if unseen not in UNSEEN:
        raise ConfigError(f"no unseen clients {unseen!r}; choose one of {', '.join(UNSEEN)}")
    if unseen == "test_writers" and (partition["kind"] != "writer" or unseen_fraction):
        raise ConfigError(
            "unseen 'test_writers' needs partition writer and unseen_fraction 0, got "
            f"{partition['kind']} and {unseen_fraction}"
        )
    if partition["kind"] == "writer" and source != "qmnist":
        raise ConfigError(f"partition writer needs source 'qmnist', got {source!r}")
    train, test = read(raw)
    x, y = (np.concatenate(parts) for parts in zip(train, test, strict=True))
    writer = None
    if source == "qmnist":
        parts = (TRAIN_WRITERS, train[1]), (TEST_WRITERS, test[1])
        writer = np.concatenate([_read_writers(raw, file, labels) for file, labels in parts])
    return scheme.federation(
        x,
        y,
        num_classes=NUM_CLASSES,
        mean=MEAN,
        std=STD,
        writer=writer,
        unseen=np.arange(len(y)) >= len(train[1]) if unseen == "test_writers" else None,
    )


def read(raw: Path) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Images [N, 1, 28, 28] uint8 and labels [N] int64 of the training and of the test part.

    Raises:
      DataError: if a raw file is missing or not the official one.
    """
    return (
        idx.images(TRAIN_IMAGES.read(raw), TRAIN_LABELS.read(raw), "MNIST training"),
        idx.images(TEST_IMAGES.read(raw), TEST_LABELS.read(raw), "MNIST test"),
    )


def _check_source(source: object) -> str:
    if source not in list(SOURCES):
        raise ConfigError(f"no MNIST source {source!r}; choose one of {', '.join(SOURCES)}")
    return source


def _read_writers(raw: Path, file: RawFile, labels: np.ndarray) -> np.ndarray:
    """Who wrote each of the images with these labels [N] -> [N] int64

    Raises:
      DataError: if the file describes other images.
    """
    described = idx.parse(file.read(raw), file.name)
    if described.ndim != 2 or described.shape[1] <= WRITER or len(described) < len(labels):
        raise DataError(
            f"{file.name} has shape {described.shape}, too small for {len(labels)} rows"
        )
    described = described[: len(labels)]  # QMNIST's test set goes on after MNIST's
    if not np.array_equal(described[:, CLASS], labels):
        raise DataError(f"{file.name} names other classes than the labels of MNIST")
    return described[:, WRITER].astype(np.int64)
