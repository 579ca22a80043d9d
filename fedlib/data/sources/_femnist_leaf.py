"""FEMNIST from LEAF's files."""

import json
import re
from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path

import numpy as np

from fedlib.data.raw import RawFolder
from fedlib.errors import DataError

SIDE = 28  # pixels
LABELS = 62

Labelled = tuple[np.ndarray, np.ndarray]  # of one writer: images [N, 1, 28, 28], labels [N]


def read(raw: Path, files: Mapping[str, RawFolder]) -> list[tuple[Labelled, Labelled]]:
    """Training and test examples of each writer with both, the writers sorted."""
    train, test = (_part(raw, files[name]) for name in ("leaf_train", "leaf_test"))
    _check_whole(raw, files)
    writers = in_both(train, test, files["leaf_train"].path, files["leaf_test"].path)
    return [(train[writer], test[writer]) for writer in writers]


def _part(raw: Path, folder: RawFolder) -> dict[str, Labelled]:
    """Images and labels of each writer in all files of a folder."""
    found = {}
    for file in folder.files(raw):
        try:
            examples = _writers(json.loads(file.read(raw)))
        except UnicodeDecodeError as error:  # its message would have the whole content
            wrong = f"it is not text ({error.reason} at byte {error.start})"
        except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            wrong = f"{error!r:.200}"
        else:
            wrong = ""
        if wrong:
            raise DataError(
                f"{file.path} is not a file of LEAF's FEMNIST: {wrong}; make it again or delete it"
            )
        twice = sorted(found.keys() & examples.keys())
        if twice:
            raise DataError(f"{file.path} has the writer {twice[0]}, whom another file has too")
        found |= examples
    return found


def _writers(content: dict) -> dict[str, Labelled]:
    """Images and labels of each writer in the content of a file.

    Raises:
      KeyError, OverflowError, TypeError, ValueError: for content that LEAF does not write.
    """
    users, data = content["users"], content["user_data"]
    if not users:
        raise ValueError("it has no users")
    found = {user: shades(*itemgetter("x", "y")(data[user])) for user in users}
    if data.keys() - found.keys() or len(found) < len(users):
        raise ValueError("users and user_data have different names")
    sizes = [len(labels) for _, labels in found.values()]
    if content.get("num_samples", sizes) != sizes:
        raise ValueError("num_samples are not the numbers of labels")
    return found


def _check_whole(raw: Path, files: Mapping[str, RawFolder]) -> None:
    """Raises DataError if a file is missing: LEAF writes pairs, and numbers them from 0."""
    names = {}
    for name in ("leaf_train", "leaf_test"):
        names[name] = [Path(file.path).name for file in files[name].files(raw)]
        found = [re.match(r"all_data_(\d+)_", file) for file in names[name]]
        numbers = {int(match[1]) for match in found if match}
        missing = sorted({*range(max(numbers, default=-1) + 1)} - numbers)
        if missing:
            raise DataError(f"{files[name].path} has no file all_data_{missing[0]}_*.json")
    if len(names["leaf_train"]) != len(names["leaf_test"]):
        counts = " and ".join(f"{files[name].path} {len(names[name])}" for name in names)
        raise DataError(f"LEAF writes pairs of files, and one is missing: {counts} files")


def in_both(train: Iterable[str], test: Iterable[str], *names: str) -> list[str]:
    """The writers in both parts, sorted; `names` of the parts are for the error message.

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
      ValueError: unless pixels are multiples of 1/255 from 0 to 1, and each image has a label, an
        integer from 0 to 61.
    """
    pixels, labels = np.asarray(x), np.asarray(y)
    if pixels.dtype.kind not in "fiu":
        raise ValueError("pixels are not numbers")
    if labels.size and (labels.dtype.kind not in "iu" or any(isinstance(one, bool) for one in y)):
        raise ValueError("labels are not integers")
    if labels.size and not 0 <= labels.min() <= labels.max() < LABELS:
        raise ValueError(f"labels are not in [0, {LABELS})")
    scaled = pixels.astype(np.float64).reshape(-1, 1, SIDE, SIDE) * 255
    x, y = np.rint(scaled), labels.astype(np.int64)
    if y.shape != (len(x),):
        raise ValueError(f"{len(x)} images but labels of shape {y.shape}")
    # Shades are stored with at least 7 decimals.
    if len(x) and not (np.abs(scaled - x).max() < 1e-3 and 0 <= x.min() and x.max() <= 255):
        raise ValueError("pixels are not multiples of 1/255 from 0 to 1")
    return x.astype(np.uint8), y
