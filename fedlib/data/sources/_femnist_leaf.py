"""FEMNIST from LEAF's files."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from fedlib.data.raw import RawFolder
from fedlib.errors import DataError

SIDE = 28  # pixels
LABELS = 62

Labelled = tuple[np.ndarray, np.ndarray]  # of one writer: images [N, 1, 28, 28], labels [N]


def read(raw: Path, files: Mapping[str, RawFolder]) -> list[tuple[Labelled, Labelled]]:
    """Training and test examples of each writer with both, the writers sorted.

    Raises:
      DataError: for a file that LEAF does not write, or if one of a pair is missing.
    """
    folders = [files[name] for name in ("leaf_train", "leaf_test")]
    counts = {folder.path: len(folder.files(raw)) for folder in folders}
    if len({*counts.values()}) > 1:
        raise DataError(f"LEAF writes pairs of files, and one is missing: {counts}")
    train, test = (_part(raw, folder) for folder in folders)
    return [(train[writer], test[writer]) for writer in in_both(train, test, *counts)]


def _part(raw: Path, folder: RawFolder) -> dict[str, Labelled]:
    """Images and labels of each writer in all files of a folder."""
    found = {}
    for file in folder.files(raw):
        try:
            data = json.loads(file.read(raw))["user_data"]
            writers = {writer: shades(own["x"], own["y"]) for writer, own in data.items()}
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
                ValueError) as error:  # fmt: skip
            raise DataError(
                f"{file.path} is not a file of LEAF's FEMNIST: {error!r:.200}; make it again or "
                "delete it"
            ) from None
        if twice := sorted(found.keys() & writers.keys()):
            raise DataError(f"{file.path} has the writer {twice[0]}, whom another file has too")
        found |= writers
    return found


def in_both(train: Iterable[str], test: Iterable[str], *names: str) -> list[str]:
    """The writers in both parts, sorted; `names` of the parts are for the error message.

    Raises:
      DataError: if there is none.
    """
    if not (writers := sorted({*train} & {*test})):
        raise DataError(f"{' and '.join(names)} have no writer in common")
    return writers


def shades(x: object, y: object) -> Labelled:
    """Images [N, 1, 28, 28] uint8 and labels [N] int64 of one writer.

    Args:
      x: N images of 784 pixels, from 0 for ink to 1 for paper.
      y: N labels.

    Raises:
      ValueError: unless pixels are multiples of 1/255 from 0 to 1, and each image has a label, an
        integer from 0 to 61.
    """
    scaled = np.asarray(x, np.float64).reshape(-1, 1, SIDE, SIDE) * 255
    pixels, labels = np.rint(scaled), np.asarray(y)
    # Shades are stored with at least 7 decimals.
    if not (np.abs(scaled - pixels.clip(0, 255)) < 1e-3).all():
        raise ValueError("pixels are not multiples of 1/255 from 0 to 1")
    if labels.shape != (len(pixels),) or not np.isin(labels, np.arange(LABELS)).all():
        raise ValueError(f"labels are not one of 0 to {LABELS - 1} for each image")
    return pixels.astype(np.uint8), labels.astype(np.int64)
