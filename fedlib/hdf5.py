"""HDF5 files that are written whole, or end in an error: the library itself crashes on a full disk.

When HDF5 closes a file and cannot write what it still has in memory, it ends the process with a
segmentation fault, and nobody hears why. So it is given a file that takes everything; what could
not be written is an error once HDF5 is done.
"""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import h5py

from fedlib.files import regular


@contextlib.contextmanager
def create(path: str | Path, **options) -> Iterator[h5py.File]:
    """Yields a new HDF5 file, in the latest format; it is closed afterwards.

    Args:
      options: of `h5py.File`, such as userblock_size.

    Raises:
      OSError: if something of it could not be written, as on a full disk.
    """
    with Path(path).open("wb+", buffering=0) as raw:
        patient = _Patient(raw)
        try:
            with h5py.File(patient, "w", libver="latest", **options) as file:
                yield file
        finally:
            if patient.error:
                raise patient.error


def opened(path: str | Path) -> h5py.File:
    """An HDF5 file, to be read.

    The library would lock it, which fails where a file system has no locks. A file that has its
    name here is whole, and nobody writes it any more.
    """
    return h5py.File(regular(path), "r", locking=False)


class _Patient:
    """A file that takes all that is written, and remembers why it did not keep it.

    Attributes:
      error: the first one, or None.
    """

    def __init__(self, raw: io.FileIO):
        self._raw = raw
        self.error: OSError | None = None
        self.read, self.readinto, self.seek, self.tell = raw.read, raw.readinto, raw.seek, raw.tell

    def write(self, data: memoryview) -> int:
        """Write all of it, which a raw file need not do at once."""
        left = memoryview(data).cast("B")
        size = len(left)
        with self._noted():
            while left:
                left = left[self._raw.write(left) :]
        return size

    def truncate(self, size: int) -> int:
        """Make the file so long."""
        with self._noted():
            self._raw.truncate(size)
        return size

    def flush(self) -> None:
        """Nothing: a raw file has no buffer."""

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = self.error or error
