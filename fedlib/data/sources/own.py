"""A data set of yours, read from a folder below data/raw/own.

The folder `source` has one of these, or two of them named train and test:

  folders   of 8-bit images, all grey or all colour and of one size; one folder for each class
  *.csv     as pandas reads it, with names in its first line; column `label`, or else the last one,
            is the class; the others are numbers, or one is called `text`
  *.npz     with arrays `x` [M, F], [M, H, W] or [M, C, H, W], and `y` [M]

All may have a `client` for each example; of images it is in paths or a file, see `clients`. Labels
are integers from 0, or words, which are numbered in sorted order; the labels of images are the
names of their folders. Clients and classes keep their names. A value that is missing is refused.
Texts become tokens by tokenizer.json beside the files, as Hugging Face's `tokenizers` write it, or
by their own words. Without a test part, every fourth example of a client, class by class, or of
a class if there are no clients, is a test example.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedlib.data import downloads
from fedlib.data.checks import check_choice, column_places, validate
from fedlib.data.examples import TEST, TRAIN, Examples
from fedlib.data.raw import files_below
from fedlib.data.sources import _own_files
from fedlib.data.sources._own_files import Content
from fedlib.data.sources.digits import set_aside
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Tokens

NUM_CLASSES = None  # files decide
HAS = ("classes", "images", "own_test", "owner", "part", "ten_classes")  # at most; files decide
SCALINGS = ("unit", "standard", "none")
PARTS = {"train": TRAIN, "test": TEST}
OF_OTHERS = "dev eval testing training val valid validation".split()  # what others call parts
TOKENISER = "tokenizer.json"
IN_PLACE = "a folder of images for each class, a .csv or .npz file, or two of these "
IN_PLACE += "called train and test"


def read(
    raw: Path,
    *,
    source: str,
    scaling: str = "unit",
    num_classes: int | None = None,
    length: int | None = None,
    clients: bool = False,
) -> Examples:
    """The examples in the order of the files: paths are sorted, rows keep their order.

    Inputs are uint8 for images and other uint8 arrays [M, C, H, W], whole numbers [M, T] for texts,
    otherwise float32.

    Args:
      raw: the folder data/raw.
      source: name of the folder in data/raw/own.
      scaling: "unit" scales uint8 images to [0, 1] by the range of uint8, and other inputs by each
        feature's or channel's smallest and largest value in the training part; "standard" subtracts
        each one's mean in the training part and divides by its deviation; "none" changes nothing.
      num_classes: L, if some class has no example; None for the number of classes in the files.
      length: tokens of each text; None without texts.
      clients: of images: whether they have clients. A client is a folder in that of a class, as ann
        in cats/ann/7.png, or stands in clients.csv beside the folders, with the columns image
        (cats/7.png; with parts train/cats/7.png) and client.

    Raises:
      ConfigError: for an invalid parameter.
      DataError: for files that are missing or invalid; names the file.
    """
    downloads.check_folder("own", source)
    check_choice("scaling", scaling, SCALINGS)
    validate("clients", clients, bool)
    folder = Path(raw) / "own" / source
    contents = _contents(folder, clients)
    parts = [TRAIN, TEST] if len(contents) == 2 else None
    file = folder / TOKENISER
    texts = {"length": length, "file": file if file.exists() else None}
    return pool(contents, parts, scaling=scaling, num_classes=num_classes, **texts)


def pool(
    contents: Sequence[Content],
    parts: Sequence[int] | None,
    *,
    scaling: str,
    num_classes: int | None = None,
    **texts: Any,
) -> Examples:
    """The examples of several files or arrays, concatenated.

    Args:
      contents: the files or arrays.
      parts: `TRAIN`, `VAL` or `TEST` for each; None sets aside test examples of each client or
        class.
      scaling, num_classes: as for `read`.
      texts: `length` and `file`, see `fedlib.data.tokenisers.of_texts`.

    Raises:
      ConfigError, DataError: as `read`.
    """
    num_classes = validate("num_classes", num_classes, int | None)
    x = _inputs(contents)
    y, classes, words = _labels(contents, num_classes)
    owner, names = _owners(contents)
    if parts is not None:
        part = np.repeat(np.array(parts, np.uint8), [len(c.y) for c in contents])
    else:
        order = np.argsort(y, kind="stable")  # where classes take turns, one would be all of it
        part = np.empty(len(y), np.uint8)
        part[order] = set_aside((y if owner is None else owner)[order])
    x, tokens = _tokens(x, part == TRAIN, texts)
    x, mean, std = (x, (), ()) if tokens else _scale(x, part == TRAIN, scaling)
    columns = [*map(str, _find_header(contents).columns or ())]
    return Examples(
        *(x, y, classes, mean, std),
        part=part if np.any(part == TEST) else None,
        owner=owner,
        num_owners=len(names),
        tokens=tokens,
        own_test=parts is not None and TEST in parts,
        owner_name=None if owner is None else names,
        class_name=words if words is not None and len(words) == classes else None,
        column_name=np.array(columns) if len({*columns}) == x.shape[-1] else None,
    )


def _contents(folder: Path, of_clients: bool) -> list[Content]:
    """The content of the folder, or of its training and its test part."""
    if not files_below(folder):
        raise DataError(f"{folder} has no files; put there {IN_PLACE}")
    table = folder / _own_files.LIST
    clients = _own_files.read_clients(table) if of_clients and table.exists() else of_clients
    others = (TOKENISER, *[table.name] * of_clients)
    entries = sorted(x for x in folder.iterdir() if x.name[0] != "." and x.name not in others)
    called = {path.stem.casefold(): path for path in entries}
    if len(entries) == 2 and called.keys() == PARTS.keys():
        return [_own_files.load(called[name], clients) for name in PARTS]
    # Else parts under other names would be classes, and a model would learn to tell them apart.
    are_parts = called.keys() <= {*PARTS, *OF_OTHERS} or {p.stem for p in entries} & PARTS.keys()
    if all(path.is_dir() for path in entries) and not are_parts:
        return [_own_files.load(folder, clients)]
    if len(entries) == 1 and entries[0].is_file():
        return [_own_files.load(entries[0], clients)]
    names = ", ".join(path.name for path in entries[:5]) + (", ..." if len(entries) > 5 else "")
    hint = f"; {table.name} is read if clients is True" if table in entries else ""
    raise DataError(f"{folder} has {names}; it must have {IN_PLACE}{hint}")


def _inputs(contents: Sequence[Content]) -> np.ndarray:
    first, named = contents[0], _find_header(contents)
    for other in contents[1:]:
        if (first.x.shape[1:], first.x.dtype) != (other.x.shape[1:], other.x.dtype):
            raise DataError(
                f"{other.path} has inputs of shape {other.x.shape[1:]} and type {other.x.dtype}; "
                f"they must be as in {first.path}, {first.x.shape[1:]} and {first.x.dtype}"
            )
    arrays = [_in_order(content, named) for content in contents]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)  # which copies even one


def _find_header(contents: Sequence[Content]) -> Content:
    """The first whose columns have names, by which those of all others are found; or the first."""
    return next((content for content in contents if content.columns), contents[0])


def _in_order(content: Content, first: Content) -> np.ndarray:
    """Inputs of `content`, whose columns are put in the order of those of `first`, by name."""
    mine, order = content.columns, first.columns
    if mine == order or mine is None or order is None:
        return content.x
    try:
        return content.x[:, column_places(mine, order)]
    except ConfigError as error:
        raise DataError(f"{content.path} and {first.path}: {error}") from None


def _tokens(x: np.ndarray, train: np.ndarray, texts: dict) -> tuple[np.ndarray, Tokens | None]:
    """Tokens for texts, whole numbers as they are; None for all other inputs."""
    if x.dtype == object:
        from fedlib.data import tokenisers  # only texts need it

        found = tokenisers.of_texts(x[train], **texts)
        return found.rows(x, len(x)), found.tokens
    if odd := [name for name, value in texts.items() if value is not None]:
        raise ConfigError(f"{' and '.join(odd)} is for texts, and these inputs are numbers")
    return x, Tokens(int(x.max()) + 1, 0) if x.dtype == np.int64 else None


def _labels(
    contents: Sequence[Content], num_classes: int | None
) -> tuple[np.ndarray, int, np.ndarray | None]:
    """Labels from 0 -> [M] int64, the number of classes, and their names if they are words."""
    paths = " and ".join(str(x.path) for x in contents[:2]) + (", ..." if contents[2:] else "")
    if len(kinds := {content.y.dtype.kind in "iu" for content in contents}) > 1:
        raise DataError(f"{paths}: labels are integers in one and words in the other")
    y = np.concatenate([content.y for content in contents])
    words = None
    if not kinds.pop():
        words, y = np.unique(y, return_inverse=True)
    lowest, highest = int(y.min()), int(y.max())
    if num_classes is not None and highest >= num_classes:
        raise ConfigError(f"num_classes is {num_classes}, but {paths} has the class {highest}")
    if lowest < 0 or (num_classes is None and len(np.unique(y)) <= highest):
        raise DataError(
            f"{paths}: {len(np.unique(y))} labels are from {lowest} to {highest}; number classes "
            "from 0, or give num_classes if some may have no example"
        )
    if lowest == highest:
        only = lowest if words is None else words[0]
        raise DataError(f"{paths}: all labels are {only}, one class")
    return y.astype(np.int64), num_classes or highest + 1, words


def _owners(contents: Sequence[Content]) -> tuple[np.ndarray | None, np.ndarray]:
    """Clients, numbered in sorted order of their names -> [M] int64, and these names."""
    if not (with_clients := [content for content in contents if content.client is not None]):
        return None, np.empty(0, np.int64)
    for content in contents:
        if content.client is None:
            raise DataError(f"{content.path} has no `client`, but {with_clients[0].path} has")
    clients = [content.client for content in contents]
    if np.result_type(*clients).kind in "Uf":  # NumPy has no integers for -1 and 2**63, say
        clients = [client.astype(str) for client in clients]
    names, owner = np.unique(np.concatenate(clients), return_inverse=True)
    return owner.astype(np.int64), names


def _scale(
    x: np.ndarray, train: np.ndarray, scaling: str
) -> tuple[np.ndarray, tuple[float, ...], tuple[float, ...]]:
    """Inputs, and `Federation.mean` and `std`."""
    if scaling == "none":
        return x.astype(np.float32, copy=False), (), ()
    if x.dtype == np.uint8 and scaling == "unit":
        return x, (0.0,) * x.shape[1], (1.0,) * x.shape[1]
    if x.dtype == np.uint8:
        mean, std = _of_bytes(x[train])
        return x, tuple(mean.tolist()), tuple(std.tolist())
    axes = (0, *range(2, x.ndim))
    known = x[train].astype(np.float64)
    find = (np.min, np.ptp) if scaling == "unit" else (np.mean, np.std)
    low, width = (one(known, axes, keepdims=True) for one in find)
    del known  # of twice the size of x, as is x - low
    width = np.where(width > 0, width, 1)
    scaled = np.divide(x - low, width, out=np.empty(x.shape, np.float32), casting="same_kind")
    return scaled, tuple(low.ravel().tolist()), tuple(width.ravel().tolist())


def _of_bytes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each channel of x / 255, of [M, C, H, W] -> [C], [C]"""
    levels = np.arange(256) / 255
    channels = [np.bincount(c.ravel(), minlength=256) / c.size for c in x.swapaxes(0, 1)]
    mean = np.array([share @ levels for share in channels])
    std = np.sqrt([share @ (levels - m) ** 2 for share, m in zip(channels, mean, strict=True)])
    return mean, np.where(std > 0, std, 1.0)
