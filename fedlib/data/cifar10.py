"""CIFAR-10: 60,000 colour images of 32 x 32 pixels, training batches first, then the test batch.

Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009;
  https://www.cs.toronto.edu/~kriz/cifar.html, python version. The MD5 of the archive is the
  author's, those of the batches are the ones torchvision checks (specification section 3.1).
"""

from pathlib import Path

import numpy as np

from fedlib.data import cifar_batch
from fedlib.data.cut import Scheme
from fedlib.data.raw import RawFile
from fedlib.federation import Federation

NUM_CLASSES = 10
MEAN = (0.4914, 0.4822, 0.4465)  # specification section 3.7
STD = (0.2023, 0.1994, 0.2010)

ARCHIVE = RawFile(
    "cifar10/cifar-10-python.tar.gz",
    170_498_071,
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    "c58f30108f718f92721af3b95e74349a",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
)


def _batch(name: str, size: int, sha256: str, md5: str) -> RawFile:
    member = f"cifar-10-batches-py/{name}"
    return RawFile(f"cifar10/{member}", size, sha256, md5, archive=ARCHIVE, member=member)


BATCHES = (
    _batch(
        "data_batch_1",
        31_035_704,
        "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
        "c99cafc152244af753f735de768cd75f",
    ),
    _batch(
        "data_batch_2",
        31_035_320,
        "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
        "d4bba439e000b95fd0a9bffe97cbabec",
    ),
    _batch(
        "data_batch_3",
        31_035_999,
        "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
        "54ebc095f3ab1f0389bbae665268c751",
    ),
    _batch(
        "data_batch_4",
        31_035_696,
        "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
        "634d18415352ddfa80567beed471001a",
    ),
    _batch(
        "data_batch_5",
        31_035_623,
        "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
        "482c414d41f54cd18b22e5b47cb7c3cb",
    ),
    _batch(
        "test_batch",
        31_035_526,
        "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
        "40351d587109b95175f43aff81a1287e",
    ),
)


def sources(**params: object) -> tuple[RawFile, ...]:
    """The five training batches and the test batch, whatever the parameters."""
    return BATCHES


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
    batches = [cifar_batch.parse(file.read(raw), file.name, "labels") for file in BATCHES]
    x, y = (np.concatenate(part) for part in zip(*batches, strict=True))
    return scheme.federation(x, y, num_classes=NUM_CLASSES, mean=MEAN, std=STD)
