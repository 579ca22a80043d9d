"""Unnamed temporary files that are mapped into memory, and a function that frees their pages.

Such a file disappears with its last user, or with the process.
"""

import mmap
import os
import tempfile
import weakref
from typing import IO

_maps: weakref.WeakSet = weakref.WeakSet()  # of all such files


def room(size: int) -> tuple[IO[bytes], mmap.mmap]:
    """(file, its mapped bytes) of a new file of `size` bytes in the folder for temporary files.

    Raises:
      OSError: if the disk has no room for it.
    """
    file = tempfile.TemporaryFile()
    if hasattr(os, "posix_fallocate"):  # not on macOS, where a later write fails instead
        os.posix_fallocate(file.fileno(), 0, size)
    file.truncate(size)
    there = mmap.mmap(file.fileno(), size)
    _maps.add(there)
    return file, there


def let_go() -> None:
    """Free the pages of all such files in this process; they are read again when needed."""
    for there in _maps:
        there.madvise(mmap.MADV_DONTNEED)
