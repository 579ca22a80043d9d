"""What all clients keep between rounds and is too much for memory: tensors in a file.

They are tensors like any other; the system reads and writes their pages. So that these do not pile
up in the process, it lets go of them after every part of a cohort (`fedlib.mapped`).
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

# Of a core's share of the machine's memory: a workflow runs a job on each core. Files are written
# anew in every round, so what fits into memory stays there.
ROOM_SHARE = 0.125
ALIGNED = 64  # bytes, as PyTorch's own memory is


def put(kept: T, rows: Tree, ids: Tensor, host_ids: np.ndarray, notes: dict) -> T:
    """`kept` of all clients with the `rows` of some, see `tree.put`; new `Rows` may go to a file.

    Args:
      ids, host_ids: of these clients, where they compute and on the host.
      notes: are told where a file has no room.
    """

    def replace(old: Tensor | Rows, new: Tensor | Rows) -> Tensor | Rows:
        if type(old) is not Rows:
            return tree.put(old, ids, new)
        return tree.put(old, host_ids, keeper(new, len(old), notes)(new))

    return tree.map_clients(replace, kept, rows)


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
        notes["kept_in_memory"] = f"no file in {tempfile.gettempdir()}: {error.strerror}"
        return Rows


class File:
    """Room for tensors, in the folder for temporary files."""

    def __init__(self, size: int):
        """Raises OSError if the disk has no room for `size` bytes."""
        self._file, self._map = mapped.room(size)
        self._used = 0

    def keep(self, rows: Rows) -> Rows:
        """Copies of the next rows in the file."""
        kept = tree.map(self._copy, rows)
        self._file.flush()
        mapped.let_go()
        return kept

    def _copy(self, x: Tensor) -> Tensor:
        flat, at = x.flatten(), self._used
        self._file.seek(at)
        self._file.write(flat.view(torch.uint8).numpy())  # cheaper than by the map
        self._used += _span(x)
        there = torch.frombuffer(self._map, dtype=x.dtype, count=x.numel(), offset=at)
        return there.reshape(x.shape)


def _span(x: Tensor) -> int:
    return -(-x.nbytes // ALIGNED) * ALIGNED
