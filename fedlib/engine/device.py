"""A federation on the computing device: copied there once, and read without waiting."""

import os
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.environment import memory
from fedlib.federation import SPLITS, Federation
from fedlib.tree import Rows, Tree

DEVICE_SHARE = 0.25  # of the device's memory, for one state that all clients keep between rounds

TOKENS = (torch.int32, torch.int64)  # types of inputs that are tokens


def channels_last(images: Tensor) -> Tensor:
    """Images [B, channels, H, W] with channels last in memory, and strides that say so.

    With a single channel both layouts have the same bytes. PyTorch would then assume channels
    first, and copy between the layouts around convolutions that need channels last.
    """
    images = images.contiguous(memory_format=torch.channels_last)
    _, channels, height, width = images.shape
    row = channels * width
    return images.as_strided(images.shape, (row * height, 1, row, channels))


class DeviceData:
    """A federation on the device: the pool once, and the rows of every client and split.

    Attributes:
      federation: the same, in host memory.
      dtype, device: of the inputs in batches; tokens keep their own dtype.
    """

    def __init__(self, federation: Federation, dtype: torch.dtype, device: torch.device):
        self.federation, self.dtype, self.device = federation, dtype, device
        self.x = torch.from_numpy(federation.x).to(device)
        self.y = torch.from_numpy(federation.y).to(device)
        self.rows = {
            name: torch.from_numpy(federation.split(name).rows).to(device) for name in SPLITS
        }
        shape = (-1, *[1] * (federation.x.ndim - 2))
        self._scale = self._shift = None
        if federation.mean and self.x.dtype == torch.uint8:
            mean, std = (np.asarray(v, np.float64) for v in (federation.mean, federation.std))
            as_tensor = torch.from_numpy(1 / (255 * std)), torch.from_numpy(-mean / std)
            self._scale, self._shift = (v.to(device, dtype).reshape(shape) for v in as_tensor)

    def inputs(self, rows: Tensor) -> Tensor:
        """Inputs of pool rows: any shape [...] of rows -> [..., *input shape]

        Pixels are scaled and bytes become numbers of `dtype`; tokens stay integers.
        """
        if self.x.dtype in TOKENS:
            return self.x[rows]
        x = self.x[rows].to(self.dtype)
        return x if self._scale is None else x * self._scale + self._shift

    def rows_of(self, split: str, client: int) -> Tensor:
        """Pool rows of one client in one split -> [N] int64"""
        offsets = self.federation.split(split).offsets
        return self.rows[split][offsets[client] : offsets[client + 1]]

    def with_fields(self, **fields: Any) -> "DeviceData":
        """The same data with other fields of the federation, such as the examples of a split."""
        other = copy(self)  # the pool is shared
        other.federation = replace(self.federation, **fields)
        splits = {x: upload(fields[x].rows, self.device) for x in SPLITS if x in fields}
        other.rows = self.rows | splits
        return other


def upload(values: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """`values` on `device`, without waiting for the device.

    A plain copy from pageable memory would block the host until all earlier kernels are done.
    """
    values = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if device.type == "cuda" and values.device.type == "cpu":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)


def is_on(x: Tensor, device: torch.device) -> bool:
    """Whether `x` is on `device`, which may be without a number: "cuda" is any such device."""
    return x.device.type == device.type and device.index in (None, x.device.index)


def move(values: Tree, device: torch.device) -> Tree:
    """`values` on `device`; leaves that are there already or are not tensors stay as they are."""
    if all(is_on(x, device) for x in tree.leaves(values) if isinstance(x, Tensor)):
        return values
    return tree.map(lambda x: upload(x, device) if isinstance(x, Tensor) else x, values)


def place(rows: Rows) -> Rows:
    """`rows`, which all clients keep between rounds, in a memory that has room for them.

    They stay on their device, or move to host memory if they would take more than `DEVICE_SHARE` of
    the device's memory once every client has its own tensors. Then executors bring the rows of a
    cohort to the device and back.
    """
    leaves = tree.leaves(rows)
    size = sum(x.nbytes for x in leaves)
    if not leaves or size <= DEVICE_SHARE * total_memory(leaves[0].device):
        return rows
    home = torch.device("cpu")
    once = {id(row): row for row in rows}  # clients that share a row still share it afterwards
    once = {number: move(row, home) for number, row in once.items()}
    return Rows(once[id(row)] for row in rows)


def total_memory(device: torch.device) -> int:
    """Bytes of memory of `device`, free or not: the same in every run on a machine.

    Of a GPU it is this job's part, see `jobs_per_gpu`.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory // jobs_per_gpu()
    return memory()


def jobs_per_gpu() -> int:
    """How many jobs share a GPU; `fedlib.workflow.gpu` sets the variable."""
    return int(os.environ.get("FEDLIB_GPU_JOBS", "1"))
