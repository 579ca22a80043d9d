"""The idx format of MNIST, EMNIST and QMNIST: a big-endian header, then bytes or integers.

Source: http://yann.lecun.com/exdb/mnist/, section "FILE FORMATS".
"""

import gzip
import math
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedlib.data.raw import RawFile
from fedlib.errors import DataError

TYPES = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}  # third byte of the file


def parse(content: bytes, name: str) -> np.ndarray:
    """The array in a gzipped idx file -> uint8 or big-endian int32, shape from the header

    Args:
      content: of the file, still compressed.
      name: of the file, for the error message.

    Raises:
      DataError: if the content is not an idx file, or is truncated.
    """
    try:
        data = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is not a whole gzip file ({error})") from None
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in TYPES:
        raise DataError(f"{name} is not an idx file of bytes or int32: it starts {data[:4].hex()}")
    dtype = TYPES[data[2]]
    start = 4 + 4 * data[3]  # a magic number whose last byte counts the dimensions, then the shape
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    size = math.prod(shape) * dtype.itemsize
    if len(data) != start + size:
        held = max(0, len(data) - start)
        raise DataError(f"{name} announces {shape}, so {size} bytes, but holds {held}")
    return np.frombuffer(data, dtype, offset=start).reshape(shape)


def parts(
    files: Mapping[str, RawFile], raw: Path, name: str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The `images` of "train" and "test", of those that are among the files.

    Raises:
      DataError: as `images`, or if a file is missing or not the official one.
    """
    return {
        part: images(
            files[f"{part}_images"].read(raw), files[f"{part}_labels"].read(raw), f"{name} {part}"
        )
        for part in ("train", "test")
        if f"{part}_images" in files
    }


def images(image_content: bytes, label_content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 1, height, width] uint8 and labels [N] int64 of a pair of files.

    Raises:
      DataError: if either file is broken, or they have different numbers of examples.
    """
    x, y = parse(image_content, f"{name} images"), parse(label_content, f"{name} labels")
    if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
        raise DataError(f"{name}: images of shape {x.shape} do not go with labels {y.shape}")
    return x[:, None], y.astype(np.int64)
