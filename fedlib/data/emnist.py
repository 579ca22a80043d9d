"""EMNIST ByClass: 814,255 handwritten characters of 28 x 28 pixels in 62 classes.

Labels are 0-9, A-Z, a-z in that order. The images are kept as the official files store them,
transposed (specification section 3.7). The training set comes first, then the test set.

Source: G. Cohen, S. Afshar, J. Tapson, A. van Schaik, "EMNIST: an extension of MNIST to handwritten
  letters", 2017 (arXiv:1702.05373); https://www.nist.gov/itl/products-and-services/emnist-dataset.
  NIST states no checksum: the MD5 is the one torchvision checks, the SHA-256 values are those
  recorded for the members of the archive in public copies of it.
"""

from pathlib import Path

import numpy as np

from fedlib.data import idx
from fedlib.data.cut import Scheme
from fedlib.data.raw import RawFile
from fedlib.errors import ConfigError
from fedlib.federation import Federation

NUM_CLASSES = 62
MEAN, STD = (0.1307,), (0.3081,)  # MNIST's; specification section 3.7
SPLITS = {"all": ("train", "test"), "test": ("test",)}  # official splits read for each `source`

ARCHIVE = RawFile(
    "emnist/raw/gzip.zip",
    561_753_746,
    "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
    "58c8d27c78d21e728a6bc7b3cc06412e",
    (
        "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
    ),
)


def _member(name: str, size: int, sha256: str, md5: str = "") -> RawFile:
    path = f"emnist/raw/{name}"
    return RawFile(path, size, sha256, md5, archive=ARCHIVE, member=f"gzip/{name}")


IMAGES = {
    "train": _member(
        "emnist-byclass-train-images-idx3-ubyte.gz",
        173_367_313,
        "9e21987f03a6eb8b870187e785883ddad96947299587908f1a7ec2ca0f4be5f0",
    ),
    "test": _member(
        "emnist-byclass-test-images-idx3-ubyte.gz",
        28_908_322,
        "5ec835bd5d5b1a66378a132e727fef20fe994b3cc666899befcca5ac766f50cd",
        "1435209e34070a9002867a9ab50160d7",
    ),
}
LABELS = {
    "train": _member(
        "emnist-byclass-train-labels-idx1-ubyte.gz",
        491_603,
        "f7ef403d48dc18a89dae0d83d11ee69cecb6e1c12c3a961d03712e495c02a8fa",
    ),
    "test": _member(
        "emnist-byclass-test-labels-idx1-ubyte.gz",
        81_839,
        "501e305eeeacb093b162592d80e8a2632040872360fa6d85cfcb2200d91ca92a",
        "7a0f934bd176c798ecba96b36fda6657",
    ),
}


def sources(**params: object) -> tuple[RawFile, ...]:
    """The images and labels of the official splits that `params["source"]` draws from."""
    splits = _splits(params.get("source", "all"))
    return tuple(file for split in splits for file in (IMAGES[split], LABELS[split]))


def build(
    raw: Path,
    *,
    partition: dict,
    train_fraction: float,
    seed: int,
    source: str = "all",
    fraction: float = 1.0,
    val_fraction: float = 0.0,
    unseen_fraction: float = 0.0,
) -> Federation:
    """The federation of a `Scheme` with these values, from the raw files below `raw`.

    Args:
      raw: folder of raw files.
      partition, fraction, train_fraction, val_fraction, unseen_fraction, seed: see `Scheme`.
      source: "all" is the official training and test set, as in the papers; "test" only the
        116,323 images of the official test set, which still exceed the 81,425 that pFedMM samples
        from all of them (section 3.2). `fraction` is of this pool.
    """
    scheme = Scheme(partition, fraction, train_fraction, val_fraction, unseen_fraction, seed)
    splits = _splits(source)
    return scheme.federation(*_read(raw, splits), num_classes=NUM_CLASSES, mean=MEAN, std=STD)


def _splits(source: object) -> tuple[str, ...]:
    if source not in list(SPLITS):
        raise ConfigError(f"no EMNIST source {source!r}; choose one of {', '.join(SPLITS)}")
    return SPLITS[source]


def _read(raw: Path, splits: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 1, 28, 28] uint8 and labels [N] int64; N is 814,255 for both splits."""
    parts = [
        idx.images(IMAGES[split].read(raw), LABELS[split].read(raw), f"EMNIST {split}")
        for split in splits
    ]
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
