"""FEMNIST from the archives of NIST, by LEAF's procedure."""

import hashlib
import io
import string
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from fedlib.data.raw import BROKEN, RawFile
from fedlib.errors import DataError

SIDE = 28  # pixels; NIST's images have 128
CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
BY_CLASS, BY_WRITER = "by_class.zip", "by_write.zip"


def read(raw: Path, files: Mapping[str, RawFile]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images [N, 1, 28, 28] uint8, labels [N] int64 and writers [N], in the order of their paths.

    Every image is in both archives: one has its class, the other its writer. The images are read
    from the archives, which takes a few minutes for all 800,000.
    """
    label_of = {digest: label for label, digest in _by_class(files["by_class"].locate(raw))}
    with zipfile.ZipFile(files["by_writer"].locate(raw)) as archive:
        names = sorted(name for name in archive.namelist() if _writer(name))
        writer = np.array([_writer(name) for name in names])
        x, y = np.empty((len(names), 1, SIDE, SIDE), np.uint8), np.empty(len(names), np.int64)
        for row, name in enumerate(names):
            content = _content(archive, name)
            digest = hashlib.md5(content, usedforsecurity=False).digest()
            if digest not in label_of:
                raise DataError(f"{name} of {BY_WRITER} is not in {BY_CLASS}")
            x[row, 0], y[row] = thumbnail(content, name), label_of[digest]
    return x, y, writer


def _by_class(path: Path) -> Iterator[tuple[int, bytes]]:
    """Label and MD5 of each image by class; of equal images the first path comes last and wins."""
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist(), reverse=True):
            if code := _class_code(name):
                content = _content(archive, name)
                yield label(code), hashlib.md5(content, usedforsecurity=False).digest()


def _class_code(name: str) -> str:
    """The 4a in by_class/4a/hsf_0/hsf_0_00000.png; "" for other files."""
    parts = name.split("/")
    is_image = len(parts) == 4 and all(parts) and len(parts[1]) == 2
    return parts[1] if is_image and "hsf" in parts[2] and "mit" not in parts[2] else ""


def _writer(name: str) -> str:
    """The f0000_14 in by_write/hsf_0/f0000_14/c0000_14/c0000_14_00000.png; "" for other files."""
    parts = name.split("/")
    return parts[2] if len(parts) == 5 and all(parts) else ""


def label(code: str) -> int:
    """Class of a character, given its ASCII code in hexadecimal digits.

    Raises:
      DataError: if it is neither a digit nor a letter.
    """
    try:
        return CHARACTERS.index(chr(int(code, 16)))
    except ValueError:
        wrong = f"{BY_CLASS} has a class {code!r}, not the ASCII code of a digit or letter"
        raise DataError(wrong) from None


def thumbnail(content: bytes, name: str) -> np.ndarray:
    """The image in grey, reduced to 28 x 28 pixels -> [28, 28] uint8

    Raises:
      DataError: if it is not an image, or not a square one.
    """
    from PIL import Image  # only this data set needs it

    try:
        image = Image.open(io.BytesIO(content)).convert("L")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{name} is not an image ({error})") from None
    # No reducing gap: Pillow had none when LEAF was written.
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS, reducing_gap=None)
    if image.size != (SIDE, SIDE):
        raise DataError(f"{name} has {image.size} pixels as a thumbnail, expected {SIDE} x {SIDE}")
    return np.asarray(image)


def _content(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        return archive.read(name)
    except BROKEN as error:
        raise DataError(f"{archive.filename} is broken ({error}); delete it") from None
