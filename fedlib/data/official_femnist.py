"""FEMNIST with the training and test examples that its publishers give each writer.

Labels are 0-9, A-Z, a-z in that order. The images show dark ink on white paper, and pixels stay in
[0, 1]: 1 is paper, so the background is not 0 as in MNIST.

Source: Reisser et al., "Federated Mixture of Experts" (FedMix); specification section 5.3. Source
  "tff" is Federated EMNIST as TensorFlow Federated distributes it (S. Reddi et al., "Adaptive
  Federated Optimization", ICLR 2021): 3,400 writers, 671,585 training and 77,483 test examples,
  every writer in both parts. Its address, the SHA-256 of the archive and the layout of the HDF5
  files are those of earlier versions of TensorFlow Federated (simulation/datasets/emnist.py). Later
  ones load an SQLite file with the same counts. Source "leaf" reads LEAF's files, see
  `fedlib.data.femnist`.
"""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from fedlib import streams
from fedlib.data import femnist, official
from fedlib.data.femnist import NUM_CLASSES
from fedlib.data.official import Owners, Parts
from fedlib.data.partition import check_count
from fedlib.data.raw import RawFile, RawFolder
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Federation

SOURCES = ("tff", "leaf")

ARCHIVE = RawFile(
    "femnist/raw/fed_emnist.tar.bz2",
    None,
    "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
    urls=(
        "https://storage.googleapis.com/tff-datasets-public/fed_emnist.tar.bz2",
        "https://fedml.s3-us-west-1.amazonaws.com/fed_emnist.tar.bz2",
    ),
)
TRAIN, TEST = (
    RawFile(f"femnist/raw/{name}", None, "", archive=ARCHIVE, member=name)
    for name in ("fed_emnist_train.h5", "fed_emnist_test.h5")
)

Examples = tuple[np.ndarray, np.ndarray]  # of one writer: images [N, 1, 28, 28], labels [N]


def sources(**params: object) -> tuple[RawFile | RawFolder, ...]:
    """The two files of TFF, or the folders that LEAF fills, as `params["source"]` says."""
    if _check_source(params.get("source", "tff")) == "tff":
        return (TRAIN, TEST)
    return (femnist.LEAF_TRAIN, femnist.LEAF_TEST)


def build(
    raw: Path,
    *,
    seed: int,
    source: str = "tff",
    num_clients: int | None = None,
    val_fraction: float = 0.0,
) -> Federation:
    """The federation whose clients are writers, from the raw files below `raw`.

    Args:
      raw: folder of raw files.
      seed: of the draw of writers and of validation examples.
      source: "tff" or "leaf", see above; one is never taken for the other.
      num_clients: so many random writers; None for all, in random order too.
      val_fraction: of a writer's training examples; FedMix mentions none.

    Raises:
      ConfigError: for a value that makes no sense.
      DataError: if a raw file is missing or not what it should be, or has too few writers.
    """
    official.check_draws(val_fraction, seed)
    if num_clients is not None:
        check_count("num_clients", num_clients)
    read = _read_tff if _check_source(source) == "tff" else _read_leaf
    train, test = read(raw, lambda writers: _some(writers, num_clients, seed))
    x, y = (np.concatenate(part) for part in zip(*train, *test, strict=True))
    ends = np.cumsum([len(labels) for _, labels in (*train, *test)])
    rows = np.split(np.arange(len(y)), ends[:-1])
    owners = Owners(rows[: len(train)], rows[len(train) :])
    mean, std = femnist.SCALINGS["unit"]
    parts = Parts(x, y, int(ends[len(train) - 1]), NUM_CLASSES, mean, std)
    return official.federation(parts, owners, val_fraction=val_fraction, seed=seed)


def _check_source(source: object) -> str:
    if source not in list(SOURCES):
        raise ConfigError(f"no FEMNIST source {source!r}; choose one of {', '.join(SOURCES)}")
    return source


def _some(writers: list[str], num_clients: int | None, seed: int) -> list[str]:
    """The first `num_clients` of the writers in random order."""
    if num_clients is not None and len(writers) < num_clients:
        raise DataError(f"num_clients is {num_clients}, but only {len(writers)} writers are there")
    order = streams.generator(seed, "writers").permutation(len(writers))
    return [writers[i] for i in order[:num_clients]]


def _read_leaf(
    raw: Path, some: Callable[[list[str]], list[str]]
) -> tuple[list[Examples], list[Examples]]:
    """Training and test examples of `some` of the writers."""
    files = femnist.LEAF_TRAIN, femnist.LEAF_TEST
    train, test = (femnist.leaf_part(raw, folder) for folder in files)
    writers = some(femnist.in_both(train, test, *(folder.path for folder in files)))
    return [train[writer] for writer in writers], [test[writer] for writer in writers]


def _read_tff(
    raw: Path, some: Callable[[list[str]], list[str]]
) -> tuple[list[Examples], list[Examples]]:
    """Training and test examples of `some` of the writers; the others' are not read.

    A file has the group "examples", in it a group for each writer, and in that the data sets
    "pixels" [N, 28, 28] float32 and "label" [N] int32.
    """
    files = [file.locate(raw) for file in (TRAIN, TEST)]
    try:
        with h5py.File(files[0]) as first, h5py.File(files[1]) as second:
            train, test = first["examples"], second["examples"]
            writers = some(femnist.in_both(train, test, TRAIN.path, TEST.path))
            return tuple(
                [
                    femnist.shades(part[writer]["pixels"][()], part[writer]["label"][()].ravel())
                    for writer in writers
                ]
                for part in (train, test)
            )
    except DataError:
        raise
    except (OSError, KeyError, ValueError) as error:
        raise DataError(
            f"{files[0]} and {files[1].name} are not the files of TFF's Federated EMNIST "
            f"({error}); delete them"
        ) from None
