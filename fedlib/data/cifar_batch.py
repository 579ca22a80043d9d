"""Safe reading of the batches of CIFAR-10 and CIFAR-100: Python 2 pickles of images and labels.

A pickle may use the three names of which a pickled array consists, and no other; so a file cannot
run code. Its checksum is compared before.
"""

import io
import pickle

import numpy as np

from fedlib.errors import DataError


def parse(content: bytes, *keys: str) -> tuple[np.ndarray, ...]:
    """Images [N, 3, 32, 32] uint8, and labels [N] int64 under each key -> arrays

    Args:
      content: of the file, with a verified checksum.
      keys: of the labels: "labels" in CIFAR-10, "fine_labels" and "coarse_labels" in CIFAR-100.

    Raises:
      DataError: if it uses another name.
    """
    batch = _Unpickler(io.BytesIO(content), encoding="latin1").load()
    x = np.asarray(batch["data"], np.uint8).reshape(-1, 3, 32, 32)
    return x, *(np.asarray(batch[key], np.int64) for key in keys)


class _Unpickler(pickle.Unpickler):
    """An unpickler that refuses all names but the three of a pickled array."""

    def find_class(self, module: str, name: str) -> object:
        """The object for `module`.`name` of a pickle."""
        if (module, name) not in _ADMITTED:
            raise DataError(f"a batch of CIFAR asks for {module}.{name}, which is not admitted")
        return _ADMITTED[module, name]


def _dtype(name: str, align: int = 0, copy: int = 0) -> np.dtype:
    """The dtype of an old pickle, which passes the flags as integers."""
    return np.dtype(name, align=bool(align), copy=bool(copy))


_RECONSTRUCT = np.empty(0).__reduce__()[0]  # its module has another name in NumPy 1 and 2
_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
}
