"""The idx format of MNIST, EMNIST and QMNIST: a big-endian header, then bytes or integers.

All files have published checksums, which are compared before they are parsed.

Source: http://yann.lecun.com/exdb/mnist/, section "FILE FORMATS".
"""

import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedlib.data.raw import RawFile

TYPES = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}  # third byte of the file


def parse(content: bytes) -> np.ndarray:
    """The array in a gzipped idx file -> uint8 or big-endian int32, shape from the header"""
    data = gzip.decompress(content)
    # A magic number whose last byte counts the dimensions, then the shape.
    shape = np.frombuffer(data, ">i4", data[3], offset=4)
    return np.frombuffer(data, TYPES[data[2]], offset=4 + 4 * len(shape)).reshape(shape)


def parts(files: Mapping[str, RawFile], raw: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Images [N, 1, height, width] uint8 and labels [N] int64, by part: "train", "test" or both.

    Raises:
      DataError: if a file is missing or not the official one.
    """
    return {
        part: (
            parse(files[f"{part}_images"].read(raw))[:, None],
            parse(files[f"{part}_labels"].read(raw)).astype(np.int64),
        )
        for part in ("train", "test")
        if f"{part}_images" in files
    }
