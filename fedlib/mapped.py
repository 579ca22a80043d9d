"""Unnamed temporary files that are mapped into memory, and a function that frees their pages.

Such a file disappears with its last user, or with the process.
"""

import ctypes
import mmap
import os
import tempfile
import weakref
from typing import IO

_maps: weakref.WeakSet = weakref.WeakSet()  # of all such files


def room(size: int) -> tuple[IO[bytes], mmap.mmap]:
    """(file, its mapped bytes) of a new file of `size` bytes in the folder for temporary files.

    Memory that this process has freed goes back to the system first, see `_trim`.

    Raises:
      OSError: if the disk has no room for it.
    """
    _trim()
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


def _trim() -> None:
    """Give freed memory back to the system.

    The C library keeps it otherwise. Gaps between blocks are often too small for new models, so
    the memory of a process would grow to twice of what it uses.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc has it
        trim(0)
