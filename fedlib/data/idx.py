"""The idx format of MNIST and EMNIST: a big-endian header, then bytes.

Source: http://yann.lecun.com/exdb/mnist/, section "FILE FORMATS".
"""

import gzip
import math
import zlib

import numpy as np

from fedlib.errors import DataError

UNSIGNED_BYTE = 0x08


def parse(content: bytes, name: str) -> np.ndarray:
    """The array in a gzipped idx file of unsigned bytes -> uint8, shape from the header.

    Args:
      content: of the file, still compressed.
      name: of the file, for the error message.

    Raises:
      DataError: if the content is not such a file, or is truncated.
    """
    try:
        data = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is not a whole gzip file ({error})") from None
    if len(data) < 4 or data[:3] != bytes([0, 0, UNSIGNED_BYTE]):
        raise DataError(f"{name} is not an idx file of bytes: it starts with {data[:4].hex()}")
    start = 4 + 4 * data[3]  # a magic number whose last byte counts the dimensions, then the shape
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    if len(data) != start + math.prod(shape):
        raise DataError(f"{name} announces {shape} bytes but holds {max(0, len(data) - start)}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def images(image_content: bytes, label_content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 1, height, width] uint8 and labels [N] int64 of a pair of files.

    Raises:
      DataError: if either is broken or they are not of the same examples.
    """
    x, y = parse(image_content, f"{name} images"), parse(label_content, f"{name} labels")
    if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
        raise DataError(f"{name}: images of shape {x.shape} do not go with labels {y.shape}")
    return x[:, None], y.astype(np.int64)
