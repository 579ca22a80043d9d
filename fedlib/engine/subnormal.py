"""Subnormal numbers, which are slow to compute with, become zero while clients train.

A float32 number below 1e-38 is subnormal: it has fewer digits the smaller it is, and an Intel
processor needs some fifty times longer for it. All gradients of a confident gate may be subnormal:
a round of Fed-MoE on FEMNIST took 69 s instead of 8.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALLEST = sys.float_info.min  # the smallest float64 that is not subnormal


@contextmanager
def flush_subnormal() -> Iterator[None]:
    """In this block, subnormal results of this thread's operations on a CPU become zero.

    The earlier setting returns after the block. Nothing changes on a processor without this mode.
    """
    before = SMALLEST * 0.5 == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
