"""FEMNIST from LEAF's files."""

import json
from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path

import numpy as np

from fedlib.data.raw import RawFolder
from fedlib.errors import DataError

SIDE = 28  # pixels

Labelled = tuple[np.ndarray, np.ndarray]  # of one writer: images [N, 1, 28, 28], labels [N]


def read(raw: Path, files: Mapping[str, RawFolder]) -> list[tuple[Labelled, Labelled]]:
    """Training and test examples of each writer who has both, the writers sorted."""
    train, test = (_part(raw, files[name]) for name in ("leaf_train", "leaf_test"))
    writers = in_both(train, test, files["leaf_train"].path, files["leaf_test"].path)
    return [(train[writer], test[writer]) for writer in writers]


def _part(raw: Path, folder: RawFolder) -> dict[str, Labelled]:
    """Images and labels of each writer in all files of a folder."""
    found = {}
    for file in folder.files(raw):
        try:
            content = json.loads(file.read(raw))
            examples = {
                user: shades(*itemgetter("x", "y")(content["user_data"][user]))
                for user in content["users"]
            }
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{file.path} is not a file of LEAF's FEMNIST: {error!r}") from None
        twice = sorted(found.keys() & examples.keys())
        if twice:
            raise DataError(f"{file.path} has the writer {twice[0]}, whom another file has too")
        found |= examples
    return found


def in_both(train: Iterable[str], test: Iterable[str], *names: str) -> list[str]:
    """The writers who are in both parts, sorted; `names` of these are for the error message.

    Raises:
      DataError: if there is none.
    """
    writers = sorted({*train} & {*test})
    if not writers:
        raise DataError(f"{' and '.join(names)} have no writer in common")
    return writers


def shades(x: object, y: object) -> Labelled:
    """Images [N, 1, 28, 28] uint8 and labels [N] int64 of one writer.

    Args:
      x: N images of 784 pixels, from 0 for ink to 1 for paper.
      y: N labels.

    Raises:
      ValueError: unless pixels are 256 shades from 0 to 1, and there is a label for each image.
    """
    scaled = np.asarray(x, np.float64).reshape(-1, 1, SIDE, SIDE) * 255
    x, y = np.rint(scaled), np.asarray(y, np.int64)
    if y.shape != (len(x),):
        raise ValueError(f"{len(x)} images but labels of shape {y.shape}")
    # Shades are stored with at least 7 decimals.
    if len(x) and not (np.abs(scaled - x).max() < 1e-3 and 0 <= x.min() and x.max() <= 255):
        raise ValueError("pixels are not multiples of 1/255 from 0 to 1")
    return x.astype(np.uint8), y
