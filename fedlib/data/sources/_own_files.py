"""A user's own data: folders of images, CSV, NumPy's npz, and arrays in memory.

Every reader returns a `Content` with checked arrays, or raises an error that names the file and the
right format.
"""

import re
import warnings
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.errors import ParserWarning

from fedlib.data.raw import BROKEN, files_below
from fedlib.errors import DataError, brief, quote

LIST = "clients.csv"  # beside folders of images
IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}  # of Pillow, and as they are read
WHOLE = (np.int32, np.int64)  # types of tokens
LABEL, TEXTS = "label", ("client", "text")  # columns that are no inputs, or no numbers
ARRAYS = "x", "y", "client"  # of an npz file
HALVES = re.compile("[\ud800-\udfff]")  # of characters, which JSON or an array may have alone
ROUNDED = "has an integer beyond 2**24 that float32 would round; scale it"


class Content(NamedTuple):
    """The content of a file, of folders of images, or of arrays.

    Attributes:
      path: of the file or folder, or a name for messages.
      x: [N, ...] inputs: uint8 [N, C, H, W], float32, int64 tokens [N, T], or texts [N].
      y: [N] labels, integers or words.
      client: [N] client of each example, integers or words; None if the file has no clients.
      columns: names of the inputs' columns, of a data frame or CSV file; None for others.
    """

    path: Path | str
    x: np.ndarray
    y: np.ndarray
    client: np.ndarray | None = None
    columns: list | None = None


Clients = bool | Mapping[Path, str]


def load(path: Path, clients: Clients = False) -> Content:
    """The content of a file, read by its ending, or of a folder of images.

    Args:
      clients: whether the images of a class are in a folder for each client; or the client of each
        image, see `read_clients`.

    Raises:
      DataError: if it cannot be read or is invalid.
    """
    readers = {".csv": _table, ".npz": _npz}
    if path.is_dir():
        return _images(path, clients)
    if clients:
        raise DataError(f"{path} is no folder of images; name its clients in a column or an array")
    if path.suffix.lower() not in readers:
        raise DataError(f"{path} is none of {', '.join(readers)}, and no folder of images")
    return readers[path.suffix.lower()](path)


def content(
    path: Path | str,
    x: Any,
    y: Any,
    client: Any = None,
    *,
    tokens: bool | None = None,
    signals: bool = False,
) -> Content:
    """Arrays, data frames, lists or tensors as `Content` has them; images get a channel.

    Args:
      path: of the file, or a name for messages.
      x, y, client: as given.
      tokens: whether inputs are tokens; None for integers [M, T] that are no data frame.
      signals: whether [N, C, T] stays what it is.

    Raises:
      DataError: for invalid arrays.
    """
    given = _inputs(f"{path}: x", x)
    if not len(given):
        raise DataError(f"{path} is empty; leave it out or give it examples")
    labels = _keys(f"{path}: y", given, y)
    if isinstance(x, pd.DataFrame) and np.array_equal(x.get(getattr(y, "name", None)), y):
        raise DataError(f"{path}: y is also the column {y.name!r} of x, which must not have it")
    client = None if client is None else _keys(f"{path}: client", given, client)
    if tokens is None:
        tokens = given.ndim == 2 and given.dtype in WHOLE and not isinstance(x, pd.DataFrame)
    columns = [*x.columns] if isinstance(x, pd.DataFrame) else None
    return Content(path, _check_inputs(path, given, tokens, signals), labels, client, columns)


def read_clients(file: Path) -> dict[Path, str]:
    """The client of each image, from a CSV file with the columns image and client.

    Raises:
      DataError: for another file, an image that is not there or has two clients, or no client.
    """
    frame = _read_csv(file, dtype=str).fillna("")
    if not {"image", "client"} <= {*frame}:
        raise DataError(f"{file} must have the columns image and client, got {[*frame]}")
    found: dict[Path, str] = {}
    for name, client in zip(frame["image"], frame["client"], strict=True):
        image = file.parent / name
        if not (there := image.is_file()) or image in found or not client.strip():
            raise DataError(
                f"{file} must have each image once, with a client; got the image {name!r}, which "
                f"is {'there' if there else 'missing'}, and the client {client!r}"
            )
        found[image] = client.strip()
    return found


def _images(folder: Path, clients: Clients) -> Content:
    """Images in order of their paths; a label is the name of the first folder in the path."""
    names = [name for name in files_below(folder) if name != LIST]
    places = [name.split("/") for name in names]
    form = "cats/ann/7.png" if clients is True else "cats/7.png"
    for name, place in zip(names, places, strict=True):
        deep = clients is False and len(place) > 2  # the first folder may be no class, but a client
        if len(place) <= form.count("/") or deep or not name.lower().endswith(IMAGES):
            form += ", or with clients = True as cats/ann/7.png, which is of ann" * deep
            raise DataError(f"{folder / name} must be an image ({', '.join(IMAGES)}), as {form}")
    if not names:
        raise DataError(f"{folder} has no images; put them into a folder for each class")
    first = _image(folder / names[0])
    x = np.empty((len(names), *first.shape), np.uint8)
    for row, name in enumerate(names):
        image = _image(folder / name)
        if image.shape != first.shape:
            raise DataError(
                f"{folder / name} has channels, height and width {image.shape}, {names[0]} has "
                f"{first.shape}; all images must be of one size, and all grey or all colour"
            )
        x[row] = image
    labels = _parse_names([place[0] for place in places])
    return Content(folder, x, labels, _owners(folder, names, clients))


def _owners(folder: Path, names: list[str], clients: Clients) -> np.ndarray | None:
    """The client of each image, from its path or from `clients` -> [N]"""
    if clients is False:
        return None
    if clients is True:
        return _parse_names(["/".join(name.split("/")[1:-1]) for name in names])
    if lacking := [name for name in names if folder / name not in clients]:
        raise DataError(f"{folder / lacking[0]} has no line in {LIST}")
    return _parse_names([clients[folder / name] for name in names])


def _parse_names(texts: Iterable[str]) -> np.ndarray:
    """Names as integers if all are written as such, otherwise as they are -> [N]"""
    names = [*texts]
    whole = all(re.fullmatch("0|-?[1-9][0-9]{0,17}", name) for name in names)
    return np.array(names, np.int64 if whole else str)


def _image(path: Path) -> np.ndarray:
    """One image -> [1, H, W] if it is grey, otherwise [3, H, W], uint8"""
    from PIL import Image, ImageOps  # only images need it

    try:
        with Image.open(path) as image:
            if "transparency" in image.info:
                raise ValueError("it has transparent pixels")
            # MPO is what cameras call a JPEG with its preview.
            if getattr(image, "is_animated", False) and image.format != "MPO":
                raise ValueError("it has several pictures, as a stack of TIFF has")
            # Pillow would cut colours of 16 bits down to 8, and call them RGB. 258: TIFF's bits.
            deep = 16 in getattr(image, "tag_v2", {}).get(258, ()) or "RGB;16" in str(image.tile)
            mode = MODES["16 bits" if deep else image.mode]
            pixels = np.asarray(ImageOps.exif_transpose(image).convert(mode))  # as viewers turn it
    except (KeyError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} must be an image of 8-bit grey or RGB: {error!r:.200}") from None
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _table(path: Path) -> Content:
    """A CSV file; columns other than label, client and text are numbers."""
    # As they are: pandas would call a second label label.1, and it would be an input.
    as_is = {"dtype": str, "keep_default_na": False}  # a text or the name of a column may be "NA"
    first = _read_csv(path, header=None, nrows=1, **as_is).iloc[0]
    of = {role: [x for x in first if x.strip().casefold() == role] for role in TEXTS}
    frame = _read_csv(path, dtype=dict.fromkeys(of["client"], str))  # clients 1 and 01 are two
    if of["text"]:
        frame[of["text"][0]] = _read_csv(path, usecols=of["text"][:1], **as_is)
    frame.columns = [name.strip().casefold() for name in first]
    named = (frame.columns != "") & ~frame.columns.duplicated()
    if not named.all() or pd.to_numeric(frame.columns, errors="coerce").notna().any():
        raise DataError(
            f"{path}: the first line must name each column, once, got {[*frame][:8]}; write the "
            "file without row numbers (index=False in pandas)"
        )
    for name in frame.columns.difference([*TEXTS, LABEL]):
        if near := get_close_matches(name, {*TEXTS, LABEL}.difference(frame), cutoff=0.8):
            raise DataError(f"{path}: column {name} is almost {near[0]}; call it so, or otherwise")
    found = {role: frame.pop(role) for role in (*TEXTS, LABEL) if role in frame}
    if LABEL not in found and len(frame.columns):
        found[LABEL] = frame.pop(frame.columns[-1])
    if LABEL not in found or bool(len(frame.columns)) == ("text" in found):
        raise DataError(
            f"{path} must have a column text or columns of numbers as inputs; besides client, "
            f"label and text it has {' and '.join(frame) or 'none (commas separate columns)'}"
        )
    client = found.get("client")
    if client is not None and client.notna().all():
        client = _parse_names(client.str.strip())
    label = found[LABEL]
    label = label.str.strip() if pd.api.types.infer_dtype(label) == "string" else label
    return content(path, found.get("text", frame), label, client)


def _read_csv(path: Path, **how: Any) -> pd.DataFrame:
    """A CSV file, by pandas; raises DataError if it cannot be read, or its lines differ."""
    try:
        with warnings.catch_warnings(action="error", category=ParserWarning):
            return pd.read_csv(path, encoding="utf-8-sig", index_col=False, low_memory=False, **how)
    except (OSError, ValueError, ParserWarning) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8: {brief(error)}") from None


def _npz(path: Path) -> Content:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ARRAYS if name in file.files}
            odd = sorted({*file.files}.difference(ARRAYS))
    except (MemoryError, OSError, TypeError, ValueError, *BROKEN) as error:  # TypeError: of npy
        raise DataError(f"{path} is not an npz file of plain arrays: {error}") from None
    if missing := [name for name in ("x", "y") if name not in arrays]:
        got = ", ".join([*arrays, *odd]) or "none"
        raise DataError(f"{path} has no array {missing[0]!r}; x and y must be there, got {got}")
    if odd:  # such as x_test
        raise DataError(f"{path} has {', '.join(odd)} besides {', '.join(ARRAYS)}; leave it out")
    return content(path, arrays["x"], arrays["y"], arrays.get("client"), tokens=False)


def _check_inputs(path: Path | str, x: np.ndarray, tokens: bool, signals: bool) -> np.ndarray:
    """Inputs as `Content` has them, images with a channel."""
    if x.dtype.kind in "OU" and x.ndim == 1:
        if odd := [i for i, text in enumerate(x) if not _is_text(text)]:
            told = f"must be a text, not blank, that UTF-8 can write, got {x[odd[0]]!r:.80}"
            raise DataError(f"{path}: x of example {odd[0]} {told}")
        return x.astype(object)
    if tokens:
        if x.dtype.kind not in "iu" or x.ndim != 2 or (x < 0).any():
            raise DataError(
                f"{path}: tokens must be integers from 0, [M, T], got {x.dtype} {[*x.shape]}; "
                "other numbers must be floats"
            )
        return x.astype(np.int64)
    if x.dtype.kind not in "biuf" or x.ndim not in (2, 3, 4) or 0 in x.shape:
        form = "numbers, [M, F], [M, H, W] or [M, C, H, W]"
        raise DataError(f"{path}: x must be {form}, got {x.dtype} {[*x.shape]}")
    if x.ndim == 4 and x.shape[1] > 4 and x.shape[-1] <= 4:
        raise DataError(f"{path}: channels come first in x, [M, C, H, W], got {list(x.shape)}")
    x = x[:, None] if x.ndim == 3 and not signals else x
    return x if x.dtype == np.uint8 and x.ndim > 2 else _to_float32(f"{path}: x", x)


def _is_text(x: Any) -> bool:
    """Whether this is a text, not blank, and without halves of characters."""
    return isinstance(x, str) and x.strip() != "" and not HALVES.search(x)


def _to_float32(name: str, x: np.ndarray) -> np.ndarray:
    """Numbers as float32, with seven digits; integers of more, infinity and NaN are a DataError."""
    whole = x.dtype.kind in "iu"  # these may not be rounded, not even as a float64 would be
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large is refused below
        rounded = x.astype(np.float32)
        exact = rounded.astype(np.int64) == x if whole else np.isfinite(rounded)
    if len(wrong := np.flatnonzero(~exact.reshape(len(x), -1).all(1))):
        why = ROUNDED if whole else "is not finite, NaN or too large"
        raise DataError(f"{name} of example {wrong[0]} {why}")
    return rounded


def _inputs(name: str, values: Any) -> np.ndarray:
    """Inputs of all examples as an array; columns of a data frame must be numbers."""
    if not isinstance(values, pd.DataFrame):
        return _array(name, values)
    if values.empty:
        return np.empty(values.shape)
    columns = []
    for column, series in values.items():
        kind, known = series.dtype, series.dropna()
        if getattr(kind, "kind", "O") not in "biuf":
            odd = known[pd.to_numeric(known, errors="coerce").isna()].head(1).tolist()
            if odd or len(known) == len(series):  # else flags, some of which are missing
                got = f"{quote(odd or known.head(1).tolist())} of type {kind}"
                raise DataError(f"{name}: column {column!r} must be numbers, got {got}")
        if series.isna().any():
            row = int(series.isna().argmax())
            raise DataError(f"{name}: column {column!r} has no value for example {row}")
        # Nullable and sparse columns have types of pandas.
        plain = getattr(kind, "numpy_dtype", getattr(kind, "subtype", kind))
        columns.append(series.to_numpy(plain))
        _to_float32(f"{name}: column {column!r}", columns[-1])
    return np.column_stack(columns)


def _keys(name: str, x: np.ndarray, values: Any) -> np.ndarray:
    """Labels or clients as integers or words -> [N]

    Raises:
      DataError: for other values, and missing ones.
    """
    keys = _array(name, values)
    if keys.shape != (len(x),):
        raise DataError(f"{name} must have {len(x)} values as x, one an example, got {keys.shape}")
    missing = pd.isna(keys)
    if not missing.any():
        keys = np.array(keys.tolist()) if keys.dtype == object else keys
        if keys.dtype.kind == "S":  # other bytes become halves of characters, refused below
            keys = np.char.decode(keys, "utf-8", "surrogateescape")
        keys = keys.astype(str) if keys.dtype.kind == "b" else keys
        missing = keys == "" if keys.dtype.kind == "U" else missing
    if missing.any():
        raise DataError(f"{name} of example {int(np.argmax(missing))} is missing")
    if keys.dtype.kind not in "iufU":
        raise DataError(f"{name} must be integers or words, got {keys.dtype}")
    if keys.dtype.kind == "U" and (odd := [x for x in {*keys.tolist()} if HALVES.search(x)]):
        raise DataError(f"{name} must be words in UTF-8, got {odd[0]!a}")
    if keys.dtype.kind != "f":  # beside int64, NumPy would make uint64 a float
        return keys.astype(np.int64) if keys.dtype.kind == "u" and keys.max() < 2**63 else keys
    wrong = ~(keys == np.rint(keys)) | (abs(keys) >= 2**53)
    if wrong.any():
        why = "; regression is not supported" * name.endswith("y")  # these are labels, not clients
        raise DataError(f"{name} must be whole numbers or words, got {keys[np.argmax(wrong)]}{why}")
    return keys.astype(np.int64)


def _array(name: str, values: Any) -> np.ndarray:
    """An array with a row for each example, without gaps."""
    try:
        array = np.asarray(values)
    except (RuntimeError, TypeError, ValueError) as error:
        raise DataError(f"{name} cannot become an array of NumPy: {brief(error)}") from error
    if array.dtype.kind == "U" and not hasattr(values, "dtype"):
        array = np.asarray(values, object)  # in which a missing value is not the word "nan"
    if np.ma.is_masked(values):
        raise DataError(f"{name} has masked values; fill them or leave their examples out")
    if not array.ndim:
        dense = "; take toarray()" if hasattr(values, "toarray") else ""
        raise DataError(f"{name} must be an array or a list, got {type(values).__name__}{dense}")
    return array
