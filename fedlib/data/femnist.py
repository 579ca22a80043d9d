"""FEMNIST: the handwritten characters of NIST Special Database 19, one client per writer.

Labels are 0-9, A-Z, a-z in that order. The images show dark ink on white paper, 28 x 28 pixels.

Source: S. Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018 (arXiv:1812.01097), whose
  procedure is followed from the two archives of NIST (source "nist"), or whose files are read
  (source "leaf"). Use in FedEM (Marfoq et al., NeurIPS 2021); specification section 3.8.
Deviation: duplicates="fixed", the default, has every image once. The official code repeats the
  first image of each writer but the first one; duplicates="official" does that too. With source
  "leaf" the training and test part of a writer are joined and split again, as the paper splits.
"""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path

import numpy as np

from fedlib.data.cut import check_splits, cut, last_are_unseen
from fedlib.data.partition import Examples, Writer, check_fraction
from fedlib.data.raw import RawFile, RawFolder
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Federation

NUM_CLASSES = 62
MEAN, STD = (0.1307,), (0.3081,)  # MNIST's; specification section 3.7
SCALINGS = {"standard": (MEAN, STD), "unit": ((0.0,), (1.0,))}  # "unit": pixels in [0, 1]
SIDE = 28  # pixels; NIST's images have 128
SOURCES = ("nist", "leaf")
DUPLICATES = ("fixed", "official")


def _archive(name: str) -> RawFile:
    """NIST publishes neither sizes nor checksums."""
    url = f"https://s3.amazonaws.com/nist-srd/SD19/{name}"
    return RawFile(f"femnist/raw/{name}", None, "", urls=(url,))


BY_CLASS, BY_WRITER = _archive("by_class.zip"), _archive("by_write.zip")
LEAF_TRAIN, LEAF_TEST = (
    RawFolder(f"femnist/data/{part}", "*.json", "LEAF's data/femnist/preprocess.sh -s niid")
    for part in ("train", "test")
)


def sources(**params: object) -> tuple[RawFile | RawFolder, ...]:
    """NIST's two archives, or the folders that LEAF fills, as `params["source"]` says."""
    if _check_source(params.get("source", "nist")) == "nist":
        return (BY_CLASS, BY_WRITER)
    return (LEAF_TRAIN, LEAF_TEST)


def build(
    raw: Path,
    *,
    train_fraction: float,
    seed: int,
    source: str = "nist",
    duplicates: str = "fixed",
    fraction: float = 1.0,
    num_clients: int | None = None,
    min_examples: int = 3,
    scaling: str = "standard",
    val_fraction: float = 0.0,
    unseen_fraction: float = 0.0,
) -> Federation:
    """The federation whose clients are writers, from the raw files below `raw`.

    Args:
      raw: folder of raw files.
      train_fraction, val_fraction: see `cut`.
      seed: of the draw of writers and of every split.
      source: "nist" or "leaf", see above; one is never taken for the other.
      duplicates: "fixed" or "official", see above; LEAF's files are taken as they are.
      fraction: of the writers that is used, in (0, 1].
      num_clients: exactly so many of these, unseen ones included; None for all.
      min_examples: writers with fewer images are left out.
      scaling: "standard" standardises pixels with MNIST's mean and deviation; "unit" leaves them in
        [0, 1], 1 for paper, as LEAF and IFCA do.
      unseen_fraction: of the writers, the last ones of their random order.

    Raises:
      ConfigError: for a value that makes no sense.
      DataError: if a raw file is missing or not what it should be.
    """
    check_fraction("fraction", fraction, one=True)
    check_fraction("train_fraction", train_fraction)
    check_splits(val_fraction, unseen_fraction, seed)
    if duplicates not in DUPLICATES:
        raise ConfigError(f"no duplicates {duplicates!r}; choose one of {', '.join(DUPLICATES)}")
    if scaling not in list(SCALINGS):
        raise ConfigError(f"no scaling {scaling!r}; choose one of {', '.join(SCALINGS)}")
    if _check_source(source) == "leaf" and duplicates != "fixed":
        raise ConfigError(f"duplicates must be 'fixed' with source 'leaf', got {duplicates!r}")
    partition = Writer(min_examples)
    x, y, writer = read_leaf(raw) if source == "leaf" else read_nist(raw, duplicates)
    owners = partition.owners(Examples(y, writer=writer), fraction=fraction, seed=seed)
    owners = _first(owners, num_clients)
    mean, std = SCALINGS[scaling]
    return cut(
        x,
        y,
        owners,
        num_classes=NUM_CLASSES,
        train_fraction=train_fraction,
        val_fraction=val_fraction,
        unseen_fraction=unseen_fraction,
        seed=seed,
        mean=mean,
        std=std,
        group=last_are_unseen(len(owners), unseen_fraction),
    )


def _first(owners: list, num_clients: int | None) -> list:
    """The first writers of the random order; DataError if there are fewer than asked for."""
    if num_clients is None:
        return owners
    if num_clients < 1:
        raise ConfigError(f"num_clients must be at least 1 or absent, got {num_clients}")
    if len(owners) < num_clients:
        raise DataError(f"num_clients is {num_clients}, but only {len(owners)} writers are there")
    return owners[:num_clients]


def _check_source(source: object) -> str:
    if source not in list(SOURCES):
        raise ConfigError(f"no FEMNIST source {source!r}; choose one of {', '.join(SOURCES)}")
    return source


# NIST's archives


def read_nist(raw: Path, duplicates: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images [N, 1, 28, 28] uint8, labels [N] int64 and writers [N], in the order of their paths.

    A character is in both archives: one says which it is, the other who wrote it. The files are
    read where they are packed; for all 800,000 of them that takes some minutes.
    """
    label_of = {digest: label for label, digest in _by_class(BY_CLASS.locate(raw))}
    with _opened(BY_WRITER.locate(raw)) as archive:
        names = sorted(name for name in archive.namelist() if _writer(name))
        writer = np.array([_writer(name) for name in names])
        x, y = np.empty((len(names), 1, SIDE, SIDE), np.uint8), np.empty(len(names), np.int64)
        for row, name in enumerate(names):
            content = _content(archive, name)
            digest = hashlib.md5(content, usedforsecurity=False).digest()
            if digest not in label_of:
                raise DataError(f"{name} of {BY_WRITER.name} is not in {BY_CLASS.name}")
            x[row, 0], y[row] = thumbnail(content, name), label_of[digest]
    if duplicates == "official":
        rows = np.sort(np.concatenate([np.arange(len(y)), first_images(writer)[1:]]))
        x, y, writer = x[rows], y[rows], writer[rows]
    return x, y, writer


def _by_class(path: Path) -> Iterator[tuple[int, bytes]]:
    """Label and MD5 of each image by class; of equal images the first path comes last, and wins."""
    with _opened(path) as archive:
        for name in sorted(archive.namelist(), reverse=True):
            code = _class_code(name)
            if code:
                content = _content(archive, name)
                yield label(code), hashlib.md5(content, usedforsecurity=False).digest()


def _class_code(name: str) -> str:
    """The 4a in by_class/4a/hsf_0/hsf_0_00000.png; "" for a file that is no such image."""
    parts = name.split("/")
    is_image = len(parts) == 4 and all(parts) and len(parts[1]) == 2
    return parts[1] if is_image and "hsf" in parts[2] and "mit" not in parts[2] else ""


def _writer(name: str) -> str:
    """The f0000_14 in by_write/hsf_0/f0000_14/c0000_14/c0000_14_00000.png; "" for another file."""
    parts = name.split("/")
    return parts[2] if len(parts) == 5 and all(parts) else ""


def label(code: str) -> int:
    """Class of a character given as the hexadecimal digits of its ASCII code.

    Raises:
      DataError: if it is neither a digit nor a letter.
    """
    try:
        character = chr(int(code, 16))
    except ValueError:
        character = ""
    for first, last, start in (("0", "9", 0), ("A", "Z", 10), ("a", "z", 36)):
        if first <= character <= last:
            return start + ord(character) - ord(first)
    raise DataError(
        f"{BY_CLASS.name} has a class {code!r}, not the ASCII code of a digit or letter"
    )


def thumbnail(content: bytes, name: str) -> np.ndarray:
    """The image file in grey and small enough -> [28, 28] uint8

    Raises:
      DataError: if it is not an image, or not a square one.
    """
    from PIL import Image, UnidentifiedImageError  # only this data set needs it

    try:
        image = Image.open(io.BytesIO(content)).convert("L")
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f"{name} is not an image ({error})") from None
    # No reducing gap: Pillow had none when LEAF was written.
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS, reducing_gap=None)
    if image.size != (SIDE, SIDE):
        raise DataError(f"{name} has {image.size} pixels as a thumbnail, expected {SIDE} x {SIDE}")
    return np.asarray(image)


def first_images(writer: np.ndarray) -> np.ndarray:
    """Rows at which a writer's images begin, where those of one writer are adjacent -> int64"""
    return np.flatnonzero(np.concatenate([[True], writer[1:] != writer[:-1]]))


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} is not a whole zip archive ({error}); delete it") from None


def _content(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        return archive.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(f"{archive.filename} is broken ({error}); delete it") from None


# LEAF's files


def read_leaf(raw: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images [N, 1, 28, 28] uint8, labels [N] int64 and writers [N], sorted by writer.

    Of the writers in both parts: first their training images, then those of LEAF's test part.
    """
    train, test = leaf_part(raw, LEAF_TRAIN), leaf_part(raw, LEAF_TEST)
    writers = in_both(train, test, LEAF_TRAIN.path, LEAF_TEST.path)
    pieces = [(writer, *part[writer]) for writer in writers for part in (train, test)]
    return (
        np.concatenate([x for _, x, _ in pieces]),
        np.concatenate([y for _, _, y in pieces]),
        np.concatenate([np.full(len(y), writer) for writer, _, y in pieces]),
    )


def leaf_part(raw: Path, folder: RawFolder) -> dict[str, tuple[np.ndarray, np.ndarray]]:
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


def shades(x: object, y: object) -> tuple[np.ndarray, np.ndarray]:
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
