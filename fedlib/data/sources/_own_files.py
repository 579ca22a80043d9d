"""Files of a user's own data set: folders of images, CSV, NumPy's npz.

Every reader returns a `Content` with checked arrays, or raises an error that names the file and the
right format.
"""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedlib.data.archives import BROKEN
from fedlib.data.raw import local_files
from fedlib.errors import DataError

IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}  # of Pillow, and as they are read


class Content(NamedTuple):
    """The content of a file, or of folders of images.

    Attributes:
      path: of the file or folder, or a name for messages.
      x: [N, ...] inputs, uint8 [N, C, H, W] or float32.
      y: [N] labels, integers or words.
      client: [N] client of each example, integers or words; None if the file has no clients.
    """

    path: Path | str
    x: np.ndarray
    y: np.ndarray
    client: np.ndarray | None = None


def load(path: Path) -> Content:
    """The content of a file, read by its ending, or of a folder of images.

    Raises:
      DataError: if it cannot be read or is invalid.
    """
    readers = {".csv": _table, ".npz": _npz}
    if path.is_dir():
        return _images(path)
    if path.suffix.lower() not in readers:
        raise DataError(f"{path} is none of {', '.join(readers)}, and no folder of images")
    return checked(readers[path.suffix.lower()](path))


def _images(folder: Path) -> Content:
    """Images in order of their paths; a label is the name of the first folder in the path."""
    names = local_files(folder)
    for name in names:
        if "/" not in name or not name.lower().endswith(IMAGES):
            raise DataError(
                f"{folder / name} must be an image ({', '.join(IMAGES)}) in the folder of its class"
            )
    if not names:
        raise DataError(f"{folder} has no images; put them into a folder for each class")
    first, x = _image(folder / names[0]), None
    for row, name in enumerate(names):
        image = _image(folder / name)
        if image.shape != first.shape:
            raise DataError(
                f"{folder / name} has {_told(image)}, {folder / names[0]} has {_told(first)}; all "
                "images must be of one size, and all grey or all colour"
            )
        x = np.empty((len(names), *first.shape), np.uint8) if x is None else x
        x[row] = image
    return Content(folder, x, _words([name.partition("/")[0] for name in names]))


def _image(path: Path) -> np.ndarray:
    """One image -> [1, H, W] if it is grey, otherwise [3, H, W], uint8"""
    from PIL import Image  # only images need it

    try:
        with Image.open(path) as image:
            mode = image.mode
            pixels = np.asarray(image.convert(MODES[mode])) if mode in MODES else None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} is not an image that can be read: {error}") from None
    if pixels is None:
        raise DataError(f"{path} has pixels of kind {mode}; save it as 8-bit grey or RGB")
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _told(image: np.ndarray) -> str:
    channels, height, width = image.shape
    return f"{width} x {height} {'grey' if channels == 1 else 'colour'} pixels"


def _table(path: Path) -> Content:
    """A CSV file; all columns except the label and the client are numbers."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [(n, row) for n, row in enumerate(csv.reader(file), 1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8: {error}") from None
    if len(lines) < 2:
        raise DataError(f"{path} must have a line of names and a line for each example")
    names = [name.strip() for name in lines[0][1]]
    if any(map(_is_number, names)) or len(set(names)) < len(names):
        raise DataError(f"{path}: the first line must name each column, once; got {names[:8]}")
    for number, row in lines[1:]:
        if len(row) != len(names):
            raise DataError(f"{path}, line {number}: {len(row)} values for {len(names)} names")
    others = [name for name in names if name != "client"]
    label = "label" if "label" in others else (others or names)[-1]
    features = [names.index(name) for name in others if name != label]
    if not features:
        raise DataError(f"{path} has only {' and '.join(names)}; it must have columns of inputs")
    x = np.array([[_number(path, n, names[i], row[i]) for i in features] for n, row in lines[1:]])
    columns = {name: [row[names.index(name)].strip() for _, row in lines[1:]] for name in names}
    client = _words(columns["client"]) if "client" in names else None
    return Content(path, x, _words(columns[label]), client)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(path: Path, line: int, column: str, text: str) -> float:
    if not _is_number(text):
        raise DataError(f"{path}, line {line}: {column} must be a number, got {text!r}")
    return float(text)


def _words(texts: list[str]) -> np.ndarray:
    """The texts as integers if all are integers, otherwise as they are -> [N]"""
    try:
        return np.array([int(text) for text in texts], np.int64)
    except (ValueError, OverflowError):
        return np.array(texts)


def _npz(path: Path) -> Content:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("x", "y", "client") if name in file.files}
    except (AttributeError, MemoryError, OSError, ValueError, *BROKEN) as error:
        raise DataError(f"{path} is not an npz file of plain arrays: {error}") from None
    missing = [name for name in ("x", "y") if name not in arrays]
    if missing:
        raise DataError(f"{path} has no array {missing[0]!r}; x and y must be there")
    words = {k: v.astype(str) if v.dtype.kind in "OS" else v for k, v in arrays.items() if k != "x"}
    return Content(path, arrays["x"], **words)


def checked(content: Content) -> Content:
    """The same with uint8 or float32 inputs, images with a channel added if they have none.

    Raises:
      DataError: for invalid arrays.
    """
    path, x = content.path, content.x
    if x.dtype.kind not in "biuf":
        raise DataError(f"{path}: x must be numbers, got the type {x.dtype}")
    if x.ndim not in (2, 3, 4) or 0 in x.shape:
        raise DataError(f"{path}: x must be [M, F], [M, H, W] or [M, C, H, W], got {list(x.shape)}")
    if x.ndim == 4 and x.shape[1] > 4 and x.shape[-1] <= 4:
        raise DataError(f"{path}: channels come first in x, [M, C, H, W], got {list(x.shape)}")
    for name, values in (("y", content.y), ("client", content.client)):
        if values is None:
            continue
        if values.shape != (len(x),):
            raise DataError(f"{path}: {name} must have {len(x)} values as x, got {values.shape}")
        if values.dtype.kind not in "iuU":
            raise DataError(f"{path}: {name} must be integers or words, got {values.dtype}")
        if values.dtype.kind == "U" and np.any(values == ""):
            row = int(np.flatnonzero(values == "")[0])
            raise DataError(f"{path}: {name} of example {row} is empty")
    x = x[:, None] if x.ndim == 3 else x
    if x.dtype != np.uint8 or x.ndim == 2:
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite: refused
            x = x.astype(np.float32)
        wrong = np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1))
        if len(wrong):
            raise DataError(f"{path}: x of example {wrong[0]} is not finite, NaN or too large")
    return content._replace(x=x)
