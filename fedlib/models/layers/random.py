"""Random layers and numbers that are functions of the batch's key.

Masks and noise are the same in every executor, on a CPU and on a GPU, regardless of earlier draws.
"""

import math

import torch
from torch import Tensor, nn

from fedlib.engine import ambient

_LOW = 0xFFFFFFFF
_PLACES = 1 << 17  # more than any salt, those of `augment` included


class Dropout(nn.Dropout):
    """Inverted dropout with masks drawn from the key of the current batch.

    `torch.nn.Dropout` draws from the device's global generator, so its masks depend on earlier
    draws, and differ between a loop over clients and a batched run and between a CPU and a GPU.

    Attributes:
      p: probability of dropping a value, in [0, 1).
      salt: distinguishes the dropout layers of one model.
    """

    def __init__(self, p: float = 0.5, salt: int = 0):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p must be in [0, 1), got {p}")
        self.p, self.salt = p, salt

    def forward(self, x: Tensor) -> Tensor:
        """Zero each value with probability p and scale the rest: [B, ...] -> [B, ...]"""
        if not self.training or self.p == 0:
            return x
        return x * self.draw_mask(x.shape, x.device) / (1 - self.p)

    def draw_mask(self, shape: torch.Size, device: torch.device) -> Tensor:
        """A new mask for every use of the layer in a step -> `shape` bool"""
        key = ambient.current_key()
        salt = self.salt + _PLACES * ambient.earlier_uses(self)
        # Into the high half: in the low half, the salt would only shift the mask.
        key = key + (salt << 32)
        return uniform_bits(key, shape, device) >= int(self.p * 2**32)


def gaussian(key: Tensor | int, shape: torch.Size, device: torch.device) -> Tensor:
    """Standard normal numbers, a pure function of `key` and position -> `shape` float64

    They are made from `uniform_bits` by Box and Muller's method.
    """
    bits = uniform_bits(key, torch.Size([*shape, 2]), device)
    radius, angle = ((bits.double() + 0.5) / 2**32).unbind(-1)  # in (0, 1)
    return (-2 * radius.log()).sqrt() * (2 * math.pi * angle).cos()


def uniform_bits(key: Tensor | int, shape: torch.Size, device: torch.device) -> Tensor:
    """Integers uniform in [0, 2^32), a pure function of `key` and position -> `shape` int64

    Two rounds of a 32-bit finaliser with full avalanche over (position, low and high half of the
    key). The arithmetic is of integers, so a CPU and a GPU agree bit by bit.
    """
    position = torch.arange(shape.numel(), device=device).reshape(shape)
    return _mix(_mix(position + (key & _LOW)) ^ ((key >> 32) & _LOW))


def _mix(x: Tensor) -> Tensor:
    """A bijection of 32-bit integers in which every input bit flips each output bit half the time.

    Constants: C. Wellons' hash-prospector search ("lowbias32").
    """
    x = x & _LOW
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _LOW
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _LOW
    return x ^ (x >> 16)
