"""Matrices sent as factors of lower rank: the singular values that hold most of the energy.

A matrix A [m, n] is sent as U [m, K], sigma [K] and V [K, n], K (m + n + 1) numbers instead of
m n, where K is the least rank whose squared singular values add up to a given share of all.

Source: Wu et al., "Communication-efficient federated learning via knowledge distillation", Nature
Communications 2022 (FedKD), dynamic gradient approximation; specification section 8.
Deviation: where the factors are as many numbers as the matrix that they make, that one is sent.
What is cut off is lost in either case; freshly drawn weights, whose energy is in many directions,
are cut off for some rounds before they are fewer numbers. A kernel of a convolution is the matrix
of its output channels by everything else; the reference library takes every small window of it for
a matrix.
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
    """What is sent of ONE model; waits for the device, as the ranks decide on shapes.

    Args:
      params: finite, squares included; leaves of one dimension are sent as they are.
      energy: share of the squared singular values that has to be kept, in (0, 1].
    """
    return {name: factored(x, energy) if x.dim() > 1 else x for name, x in params.items()}


def factored(x: Tensor, energy: float) -> Tensor | Factors:
    """The factors of `x` [m, ...], or what they make of it if that is no more numbers."""
    u, sigma, v = torch.linalg.svd(x.flatten(1), full_matrices=False)
    squares = sigma.square()
    below = squares.cumsum(0) - squares  # kept by the ranks below each
    rank = int((below < energy * squares.sum()).sum())
    factors = Factors(u[:, :rank], sigma[:rank], v[:rank])
    return factors if tree.numel(factors) < x.numel() else factors.product().reshape(x.shape)


def recovered(message: Message, like: Params) -> Params:
    """The model that a message is of, in the shapes of `like`."""
    return {
        name: x.product().reshape(like[name].shape) if isinstance(x, Factors) else x
        for name, x in message.items()
    }
