"""What all clients keep between rounds and is too much for memory: tensors in a file.

They are tensors like any other; the system reads and writes their pages. So that these do not pile
up in the process, it lets go of them after every part of a cohort. A file has no name: it is gone
with its last tensor, or with the process.
"""

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from fedlib import tree
from fedlib.environment import memory
from fedlib.tree import Rows

# Of a core's share of the machine's memory: a workflow runs a job on each core. Files are written
# anew in every round, so what fits into memory stays there.
ROOM_SHARE = 0.125
ALIGNED = 64  # bytes, as PyTorch's own memory is

_maps: weakref.WeakSet = weakref.WeakSet()  # of all files that are there


def keeper(rows: Rows, clients: int, notes: dict) -> Callable[[Rows], Rows]:
    """What puts the new rows of a cohort where there is room for them: in memory, or in a file.

    Args:
      rows: the cohort's before they are renewed.
      clients: whose rows are kept, this cohort's and all others.
      notes: are told where a file has no room.
    """
    leaves = tree.leaves(rows)
    size = sum(map(_span, leaves))
    of_all = 2 * size * clients / len(rows)  # before and after a round
    room = ROOM_SHARE * memory() / (os.cpu_count() or 1)
    if of_all <= room or any(x.device.type != "cpu" for x in leaves):
        return Rows
    try:
        return File(size).keep
    except OSError as error:
        notes["momenta_in_memory"] = f"no file in {tempfile.gettempdir()}: {error.strerror}"
        return Rows


class File:
    """Room for tensors, in the folder for temporary files."""

    def __init__(self, size: int):
        """Raises OSError if the disk has no room for `size` bytes."""
        self._file = tempfile.TemporaryFile()
        if hasattr(os, "posix_fallocate"):  # not on macOS: there a write fails later on
            os.posix_fallocate(self._file.fileno(), 0, size)
        self._file.truncate(size)
        self._map = mmap.mmap(self._file.fileno(), size)
        self._used = 0
        _maps.add(self._map)

    def keep(self, rows: Rows) -> Rows:
        """Copies of the next rows in the file."""
        kept = tree.map(self._copy, rows)
        self._file.flush()
        let_go()
        return kept

    def _copy(self, x: Tensor) -> Tensor:
        flat, at = x.flatten(), self._used
        self._file.seek(at)
        self._file.write(flat.view(torch.uint8).numpy())  # cheaper than by the map
        self._used += _span(x)
        there = torch.frombuffer(self._map, dtype=x.dtype, count=x.numel(), offset=at)
        return there.reshape(x.shape)


def let_go() -> None:
    """Let the process forget the pages of all files; they are read again when they are needed."""
    for file in _maps:
        file.madvise(mmap.MADV_DONTNEED)


def _span(x: Tensor) -> int:
    return -(-x.nbytes // ALIGNED) * ALIGNED
