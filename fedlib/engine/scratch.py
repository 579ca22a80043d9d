"""Tensors in a file, for client states that are too large for memory.

They work like other tensors; the operating system reads and writes their pages. After every part of
a cohort the process frees these pages (`fedlib.mapped`).
"""

import os
import tempfile
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedlib import mapped, tree
from fedlib.environment import memory
from fedlib.tree import Rows, T, Tree

# Of a core's share of the machine's memory, because a workflow runs a job on each core. Files are
# written again in every round, so states that fit into memory stay there.
ROOM_SHARE = 0.125
ALIGNED = 64  # bytes, as PyTorch's own memory is


def put(kept: T, rows: Tree, ids: Tensor, host_ids: np.ndarray, notes: dict) -> T:
    """`kept` of all clients with the `rows` of some, see `tree.put`; new `Rows` may go to a file.

    Args:
      ids, host_ids: of these clients, on the device and on the host.
      notes: gets a note if there is no room for a file.
    """

    def replace(old: Tensor | Rows, new: Tensor | Rows) -> Tensor | Rows:
        if type(old) is not Rows:
            return tree.put(old, ids, new)
        return tree.put(old, host_ids, keeper(new, len(old), notes)(new))

    return tree.map_clients(replace, kept, rows)


def keeper(rows: Rows, clients: int, notes: dict) -> Callable[[Rows], Rows]:
    """A function that keeps new rows of a cohort where there is room: in memory, or in a file.

    Args:
      rows: of the cohort, for their size.
      clients: number of clients whose rows are kept, in this cohort or not.
      notes: gets a note if there is no room for a file.
    """
    leaves = tree.leaves(rows)
    size = sum(map(_span, leaves))
    of_all = 2 * size * clients / len(rows)  # twice: before and after a round
    room = ROOM_SHARE * memory() / (os.cpu_count() or 1)
    if of_all <= room or any(x.device.type != "cpu" for x in leaves):
        return Rows
    try:
        return File(size).keep
    except OSError as error:
        notes["kept_in_memory"] = f"no file in {tempfile.gettempdir()}: {error.strerror}"
        return Rows


class File:
    """Room for tensors, in the folder for temporary files."""

    def __init__(self, size: int):
        """Raises OSError if the disk has no room for `size` bytes."""
        self._file, self._map = mapped.room(size)
        self._used = 0

    def keep(self, rows: Rows) -> Rows:
        """Copies of `rows`, in the file after those of earlier calls."""
        kept = tree.map(self._copy, rows)
        self._file.flush()
        mapped.let_go()
        return kept

    def _copy(self, x: Tensor) -> Tensor:
        flat, at = x.flatten(), self._used
        self._file.seek(at)
        self._file.write(flat.view(torch.uint8).numpy())  # cheaper than through the map
        self._used += _span(x)
        there = torch.frombuffer(self._map, dtype=x.dtype, count=x.numel(), offset=at)
        return there.reshape(x.shape)


def _span(x: Tensor) -> int:
    return -(-x.nbytes // ALIGNED) * ALIGNED
