"""Files of a user's own data set: folders of images, CSV, NumPy's npz.

Every reader returns a `Content` with checked arrays, or raises an error that names the file and the
right format.
"""

import csv
import math
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedlib.data.raw import BROKEN, files_below
from fedlib.errors import DataError

LIST = "clients.csv"
CLIENTS = ("folder", "prefix", LIST)  # places of an image's client: in its path, or in a file
IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
# Texts that stand for a missing value, as for pandas.
MISSING = ("", "#N/A", "-NaN", "-nan", "<NA>", "N/A", "NA", "NULL", "NaN", "NaT", "None", "n/a")
MISSING += ("nan", "null")
WHOLE = re.compile(r"[+-]?[0-9]+(\.0*)?")
MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}  # of Pillow, and as they are read


class Content(NamedTuple):
    """The content of a file, or of folders of images.

    Attributes:
      path: of the file or folder, or a name for messages.
      x: [N, ...] inputs: uint8 [N, C, H, W], float32, int64 tokens [N, T], or texts [N].
      y: [N] labels, integers or words.
      client: [N] client of each example, integers or words; None if the file has no clients.
      tokens: whether whole numbers in `x` stay what they are.
    """

    path: Path | str
    x: np.ndarray
    y: np.ndarray
    client: np.ndarray | None = None
    tokens: bool = False


Clients = str | Mapping[Path, str] | None


def load(path: Path, clients: Clients = None) -> Content:
    """The content of a file, read by its ending, or of a folder of images.

    Args:
      clients: place of the client in the path of an image, "folder" or "prefix"; or the client of
        each path, see `listed`; None for no clients.

    Raises:
      DataError: if it cannot be read or is invalid.
    """
    readers = {".csv": _table, ".npz": _npz}
    if path.is_dir():
        return _images(path, clients)
    if clients is not None:
        raise DataError(f"{path} is no folder of images, which alone take clients from elsewhere")
    if path.suffix.lower() not in readers:
        raise DataError(f"{path} is none of {', '.join(readers)}, and no folder of images")
    return checked(readers[path.suffix.lower()](path))


def listed(file: Path) -> dict[Path, str]:
    """The client of each image, from a CSV file with the columns image and client.

    Raises:
      DataError: for another file, an image that is not there or has two clients, or no client.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            rows = [*csv.DictReader(lines)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} is not a CSV file in UTF-8: {error}") from None
    found: dict[Path, str] = {}
    for number, row in enumerate(rows, 2):
        name, client = row.get("image") or "", row.get("client") or ""
        image = file.parent / name
        if client.strip() in MISSING or image in found or not image.is_file():
            raise DataError(
                f"{file}, line {number} must have an image that is there, once, in the column "
                f"image, and its client in the column client; got {name!r} and {client!r}"
            )
        found[image] = client.strip()
    return found


def _images(folder: Path, clients: Clients) -> Content:
    """Images in order of their paths; a label is the name of the first folder in the path."""
    names = [x for x in files_below(folder) if x != LIST or not isinstance(clients, Mapping)]
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
    labels = [name.partition("/")[0] for name in names]
    owners = None if clients is None else [_client(folder, name, clients) for name in names]
    return Content(
        folder,
        x,
        _words(labels, lambda row: f"{folder / names[row]}: the class"),
        owners and _words(owners, lambda row: f"{folder / names[row]}: the client"),
    )


def _client(folder: Path, name: str, clients: str | Mapping[Path, str]) -> str:
    """The client in the path of an image, cats/ann/7.png or cats/ann_7.png, or of that path.

    Raises:
      DataError: if there is none.
    """
    if isinstance(clients, Mapping):
        if folder / name not in clients:
            raise DataError(f"{folder / name} has no line in {LIST}")
        return clients[folder / name]
    _, *between, file = name.split("/")
    found = "/".join(between) if clients == "folder" else re.match(r"([^_]+)_", file)
    if not found:
        place = "in a folder of its client: cats/ann/7.png"
        place = place if clients == "folder" else "called by its client: ann_7.png"
        raise DataError(f"{folder / name} must be {place}")
    return found if isinstance(found, str) else found[1]


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
    """A CSV file; columns other than label, client and text are numbers."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _rows(path, ((n, row) for n, row in enumerate(csv.reader(file), 1) if row))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8: {error}") from None


def _rows(path: Path, lines: Iterator[tuple[int, list[str]]]) -> Content:
    """The content of these lines, each with its number; texts of numbers are not kept."""
    names = [name.strip() for name in next(lines, (1, []))[1]]
    roles = _roles(path, names)
    features = [(i, name) for i, name in enumerate(names) if i not in roles.values()]
    if names and bool(features) == ("text" in roles):
        columns = " and ".join(name for _, name in features) or "none"
        raise DataError(
            f"{path} must have a column text or columns of numbers as inputs; besides client, "
            f"label and text it has {columns}"
        )
    x, texts, places = array("d"), {role: [] for role in roles}, []
    for number, row in lines:
        if len(row) != len(names):
            raise DataError(f"{path}, line {number}: {len(row)} values for {len(names)} names")
        x.extend(_number(path, number, name, row[i]) for i, name in features)
        places.append(number)
        for role, i in roles.items():
            text = row[i].strip()
            if text in MISSING and (role != "text" or not text):
                raise DataError(f"{path}, line {number}: {names[i]} is missing, got {text!r}")
            texts[role].append(text)
    if not places:
        raise DataError(f"{path} must have a line of names and a line for each example")
    given = np.array(texts.pop("text"), object) if "text" in roles else None
    values = {
        role: _words(
            found, lambda row, role=role: f"{path}, line {places[row]}: {names[roles[role]]}"
        )
        for role, found in texts.items()
    }
    numbers = np.frombuffer(x).reshape(len(places), -1) if given is None else given
    return Content(path, numbers, values["label"], values.get("client"))


def _roles(path: Path, names: list[str]) -> dict[str, int]:
    """Positions of the columns of labels and, if there are some, clients and texts.

    Raises:
      DataError: if a column has no name, or two have the same.
    """
    if any(map(_is_number, names)) or len(set(names)) < len(names):
        raise DataError(f"{path}: the first line must name each column, once; got {names[:8]}")
    for i, name in enumerate(names):
        if not name or re.fullmatch(r"Unnamed: \d+", name):
            raise DataError(
                f"{path}: column {i + 1} has no name; write the file without row numbers "
                "(index=False in pandas) or name the column"
            )
    found = {}
    for role in ("client", "label", "text"):
        places = [i for i, name in enumerate(names) if name.casefold() == role]
        if len(places) > 1:
            raise DataError(
                f"{path} has {len(places)} columns called {role}, in any case; keep one"
            )
        if places:
            [found[role]] = places
    rest = [i for i in range(len(names)) if i not in found.values()]
    if "label" not in found and names:
        found["label"] = (rest or [len(names) - 1])[-1]
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text


def _number(path: Path, line: int, column: str, text: str) -> float:
    if not _is_number(text) or not math.isfinite(float(text)):
        raise DataError(f"{path}, line {line}: {column} must be a number, got {text!r}")
    return float(text)


def _words(texts: list[str], place: Callable[[int], str]) -> np.ndarray:
    """The texts as integers if all are numbers, otherwise as they are -> [N]

    Args:
      place: of a row, for messages.

    Raises:
      DataError: if all are numbers, and one is not whole, or written in two ways.
    """
    if not all(map(_is_number, texts)):
        return np.array(texts)
    ways: dict[int, str] = {}
    for row, text in enumerate(texts):
        if not WHOLE.fullmatch(text):
            raise DataError(f"{place(row)} must be a whole number or a word, got {text!r}")
        written = ways.setdefault(int(text.partition(".")[0]), text)
        if written != text:
            raise DataError(f"{place(row)} is {text!r}, which other rows write as {written!r}")
    try:
        return np.array([int(text.partition(".")[0]) for text in texts], np.int64)
    except OverflowError:
        return np.array(texts)


def _npz(path: Path) -> Content:
    try:
        with np.load(path, allow_pickle=False) as file:
            named = ("x", "tokens", "y", "client")
            arrays = {name: file[name] for name in named if name in file.files}
    except (AttributeError, MemoryError, OSError, ValueError, *BROKEN) as error:
        raise DataError(f"{path} is not an npz file of plain arrays: {error}") from None
    tokens = "tokens" in arrays and "x" not in arrays
    if tokens:
        arrays["x"] = arrays.pop("tokens")
    missing = [name for name in ("x", "y") if name not in arrays]
    if missing:
        raise DataError(f"{path} has no array {missing[0]!r}; x and y must be there")
    words = {k: v.astype(str) if v.dtype.kind in "OS" else v for k, v in arrays.items() if k != "x"}
    return Content(path, arrays["x"], **words, tokens=tokens)


def _integers(path: Path | str, values: np.ndarray) -> np.ndarray:
    """Tokens as int64; raises DataError for something else than integers [M, T] from 0."""
    if values.dtype.kind not in "iu" or values.ndim != 2 or values.size and values.min() < 0:
        raise DataError(
            f"{path}: tokens must be integers from 0, [M, T], got {values.dtype} {[*values.shape]} "
            f"from {values.min() if values.size else 'none'}; other numbers must be floats"
        )
    return values.astype(np.int64)


def checked(content: Content, signals: bool = False) -> Content:
    """The same with inputs as `Content` says, images with a channel added if they have none.

    Args:
      content: as it was given.
      signals: whether [N, C, T] stays what it is.

    Raises:
      DataError: for invalid arrays.
    """
    path, x = content.path, content.x
    given = {"y": content.y, "client": content.client}
    keys = {name: _keys(path, name, x, v) for name, v in given.items() if v is not None}
    if x.dtype.kind in "OU" and x.ndim == 1 and all(isinstance(text, str) for text in x):
        return content._replace(x=x.astype(object), **keys)
    if content.tokens:
        return content._replace(x=_integers(path, x), **keys)
    if x.dtype.kind not in "biuf":
        raise DataError(f"{path}: x must be numbers, got the type {x.dtype}")
    if x.ndim not in (2, 3, 4) or 0 in x.shape:
        raise DataError(f"{path}: x must be [M, F], [M, H, W] or [M, C, H, W], got {list(x.shape)}")
    if x.ndim == 4 and x.shape[1] > 4 and x.shape[-1] <= 4:
        raise DataError(f"{path}: channels come first in x, [M, C, H, W], got {list(x.shape)}")
    x = x[:, None] if x.ndim == 3 and not signals else x
    if x.dtype != np.uint8 or x.ndim == 2:
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite: refused
            rounded = x.astype(np.float32)
        whole = x.dtype.kind in "iu"  # these may not be rounded
        with np.errstate(invalid="ignore"):
            exact = rounded.astype(x.dtype) == x if whole else np.isfinite(rounded)
        wrong = np.flatnonzero(~exact.reshape(len(x), -1).all(1))
        if len(wrong):
            of_whole = "has an integer beyond 2**24 that float32 would round; scale it"
            why = of_whole if whole else "is not finite, NaN or too large"
            raise DataError(f"{path}: x of example {wrong[0]} {why}")
        x = rounded
    return content._replace(x=x, **keys)


def _keys(path: Path | str, name: str, x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Labels or clients as integers or words -> [N]

    Raises:
      DataError: for other values, and missing ones.
    """
    if values.shape != (len(x),):
        several = name == "y" and values.ndim > 1
        limit = "; several labels of an example are not supported" if several else ""
        raise DataError(f"{path}: {name} must have {len(x)} values as x, got {values.shape}{limit}")
    if values.dtype.kind not in "biufU":
        raise DataError(f"{path}: {name} must be integers or words, got {values.dtype}")
    texts = values if values.dtype.kind == "U" else values.astype(str)
    missing = np.isin(np.char.strip(texts), MISSING)
    if missing.any():
        row = int(np.argmax(missing))
        raise DataError(f"{path}: {name} of example {row} is missing, got {str(texts[row])!r}")
    strange = next((text for text in np.unique(texts) if not text.isprintable()), None)
    if strange is not None:
        raise DataError(f"{path}: {name} has {str(strange)!r}, a name with control characters")
    if values.dtype.kind == "b":
        return texts
    if values.dtype.kind == "f":
        wrong = ~(values == np.rint(values)) | (abs(values) >= 2**53)
        if wrong.any():
            raise DataError(
                f"{path}: {name} must be whole numbers or words, got {values[np.argmax(wrong)]}"
                + "; regression is not supported" * (name == "y")
            )
        return values.astype(np.int64)
    return values
