"""Files without a name that are mapped into memory, and letting go of their pages.

Such a file is gone with its last user, or with the process.
"""

import mmap
import os
import tempfile
import weakref
from typing import IO

_maps: weakref.WeakSet = weakref.WeakSet()  # of all files that are there


def room(size: int) -> tuple[IO[bytes], mmap.mmap]:
    """A new file of `size` bytes in the folder for temporary files, and its bytes in memory.

    Raises:
      OSError: if the disk has no room for it.
    """
    file = tempfile.TemporaryFile()
    if hasattr(os, "posix_fallocate"):  # not on macOS: there a write fails later on
        os.posix_fallocate(file.fileno(), 0, size)
    file.truncate(size)
    there = mmap.mmap(file.fileno(), size)
    _maps.add(there)
    return file, there


def let_go() -> None:
    """Let the process forget the pages of all files; they are read again when they are needed."""
    for there in _maps:
        there.madvise(mmap.MADV_DONTNEED)
