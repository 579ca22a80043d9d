"""A federation on the device that computes: put there once, and read without waiting for it."""

import os

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.federation import SPLITS, Federation
from fedlib.tree import Tree

TOKENS = (torch.int32, torch.int64)  # types of inputs that are numbers of words, not quantities


class DeviceData:
    """A federation on the device: the pool once, and the rows of every client and split.

    Attributes:
      federation: the same, in host memory.
      dtype, device: of the inputs that batches carry, unless they are tokens.
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
        if federation.mean:
            mean, std = (np.asarray(v, np.float64) for v in (federation.mean, federation.std))
            as_tensor = torch.from_numpy(1 / (255 * std)), torch.from_numpy(-mean / std)
            self._scale, self._shift = (v.to(device, dtype).reshape(shape) for v in as_tensor)

    def inputs(self, rows: Tensor) -> Tensor:
        """Inputs of pool rows: any shape [...] of rows -> [..., *input shape]

        Pixels are scaled and bytes become numbers of `dtype`; tokens stay the integers they are.
        """
        if self.x.dtype in TOKENS:
            return self.x[rows]
        x = self.x[rows].to(self.dtype)
        return x if self._scale is None else x * self._scale + self._shift

    def owned(self, split: str, client: int) -> Tensor:
        """Pool rows of one client in one split -> [N] int64"""
        offsets = self.federation.split(split).offsets
        return self.rows[split][offsets[client] : offsets[client + 1]]


def upload(values: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """`values` on `device`, without waiting for what the device is doing.

    A plain copy from pageable memory would stop the host until every kernel before it is done.
    """
    values = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if device.type == "cuda" and values.device.type == "cpu":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)


def moved(values: Tree, device: torch.device) -> Tree:
    """`values` on `device`; what is there already is not copied."""
    return tree.map(lambda x: upload(x, device), values)


def total_memory(device: torch.device) -> int:
    """Bytes of memory that `device` has, free or not: the same in every run on one machine."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
