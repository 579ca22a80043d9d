"""Numbers so small that a processor is slow at them become zero while clients train.

Below 1e-38 a number of float32 is subnormal: it has fewer digits the smaller it is, and an Intel
processor is some fifty times slower at it. Where a gate is sure of itself, all of its gradients may
be like that: a round of Fed-MoE on FEMNIST took 69 s instead of 8.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALLEST = sys.float_info.min  # that has all its digits


@contextmanager
def flushed() -> Iterator[None]:
    """Until it is left, this thread's operations on a CPU make zero of subnormal results.

    Numbers and other libraries outside of it are as before. Where a processor cannot do that,
    nothing happens.
    """
    before = SMALLEST * 0.5 == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
