"""Low-rank compression: matrices are sent as the factors of a truncated SVD.

A matrix A [m, n] is sent as U [m, K], sigma [K] and V [K, n]: K (m + n + 1) numbers instead of
m n. K is the lowest rank whose squared singular values add up to a given share of their total.

Source: Wu et al., "Communication-efficient federated learning via knowledge distillation", Nature
Communications 2022 (FedKD), dynamic gradient approximation; section 8 of
fedlib/papers/pfedmoe/README.md.
Deviation: if the factors have at least as many numbers as the matrix, the product of the factors is
sent instead, so the truncation loses the same. This happens in the first rounds, as new random
weights have high rank. A convolution kernel is a matrix of its output channels by all other
dimensions; the reference library takes every small window of it for a matrix.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.task import Params


class Factors(NamedTuple):
    """A matrix of rank K."""

    u: Tensor  # [m, K]
    sigma: Tensor  # [K]
    v: Tensor  # [K, n]

    def product(self) -> Tensor:
        """The matrix -> [m, n]"""
        return self.u * self.sigma @ self.v


Message = dict[str, Tensor | Factors]


def compressed(params: Params, energy: float) -> Message:
    """The message for ONE model; waits for the device, as shapes depend on the ranks.

    Args:
      params: finite, with finite squares; leaves of one dimension are sent unchanged.
      energy: share of the squared singular values to keep, in (0, 1].
    """
    return {name: factored(x, energy) if x.dim() > 1 else x for name, x in params.items()}


def factored(x: Tensor, energy: float) -> Tensor | Factors:
    """The factors of `x` [m, ...], or their product if that has no more numbers."""
    u, sigma, v = torch.linalg.svd(x.flatten(1), full_matrices=False)
    squares = sigma.square()
    below = squares.cumsum(0) - squares  # energy of all smaller ranks
    rank = int((below < energy * squares.sum()).sum())
    factors = Factors(u[:, :rank], sigma[:rank], v[:rank])
    return factors if tree.numel(factors) < x.numel() else factors.product().reshape(x.shape)


def recovered(message: Message, like: Params) -> Params:
    """The model of a message, in the shapes of `like`."""
    return {
        name: x.product().reshape(like[name].shape) if isinstance(x, Factors) else x
        for name, x in message.items()
    }
