"""HDF5 files, with an error instead of a crash on a full disk.

HDF5 crashes with a segmentation fault if it closes a file and cannot write the last bytes. So it
gets a file that seems to accept every write, and the first failed write is raised as an error
after HDF5 has finished.
"""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np


@contextlib.contextmanager
def create(path: str | Path, **options) -> Iterator[h5py.File]:
    """Yields a new HDF5 file, in the latest format; it is closed afterwards.

    Args:
      options: of `h5py.File`, such as userblock_size.

    Raises:
      OSError: if a write failed, as on a full disk.
    """
    with Path(path).open("wb+", buffering=0) as raw:
        patient = _Patient(raw)
        try:
            with h5py.File(patient, "w", libver="latest", **options) as file:
                yield file
        finally:
            if patient.error:
                raise patient.error


def open_file(path: str | Path) -> h5py.File:
    """An HDF5 file, open for reading.

    It is not locked, because some file systems have no locks. It needs none: files get their names
    once they are complete (`fedlib.files.atomic`).
    """
    return h5py.File(path, "r", locking=False)


def plain(array: np.ndarray) -> np.ndarray:
    """The array, with words in UTF-8, as HDF5 can store it."""
    return np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array


def words(array: np.ndarray) -> np.ndarray:
    """The array that was stored as `plain`."""
    return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array


def read(dataset: h5py.Dataset) -> np.ndarray:
    """The content of a dataset, mapped from the file if possible.

    Mapped pages are not copied, and all jobs of a machine share them; a copy takes longer than the
    checksum. Writing to the array changes a private copy. Files are replaced, never changed
    (`fedlib.files.atomic`), so mapped content stays the same.
    """
    offset = dataset.id.get_offset()  # None if compressed, in chunks, or empty
    if offset is None or offset % dataset.dtype.alignment or dataset.dtype.kind == "S":
        return words(dataset[:])
    return np.asarray(np.memmap(dataset.file.filename, dataset.dtype, "c", offset, dataset.shape))


class _Patient:
    """A file that accepts every write, and remembers the first error.

    Attributes:
      error: the first error, or None.
    """

    def __init__(self, raw: io.FileIO):
        self._raw = raw
        self.error: OSError | None = None
        self.read, self.readinto, self.seek, self.tell = raw.read, raw.readinto, raw.seek, raw.tell

    def write(self, data: memoryview) -> int:
        """Write all of `data`, in several calls if needed."""
        left = memoryview(data).cast("B")
        size = len(left)
        with self._note_error():
            while left:
                left = left[self._raw.write(left) :]
        return size

    def truncate(self, size: int) -> int:
        """Set the length of the file."""
        with self._note_error():
            self._raw.truncate(size)
        return size

    def flush(self) -> None:
        """Nothing: a raw file has no buffer."""

    @contextlib.contextmanager
    def _note_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = self.error or error
