"""Gradient divergence: how much the directions of the clients' updates differ.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724),
appendix D and Figure 1; section 7.3 of fedlib/papers/fedmix/README.md.
Deviation: the paper does not mention clients whose difference in a tensor is zero. Here they are
left out of that tensor, as they have no direction, and the others' weights sum to 1.
"""

import torch
from torch import Tensor

from fedlib import tree
from fedlib.tree import Tree


def directions(differences: Tree, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
    """For each tensor (p u, p), whose sums over clients `divergence` takes.

    Args:
      differences: d, parameters sent minus parameters returned, leaves [C, E, ...].
      weights: p [C, E], at least 0; they need not sum to 1.
    """
    return [_direction(d, weights.to(d.dtype)) for d in tree.leaves(differences)]


def divergence(summed: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Mean of (1 - cosine) / 2 over pairs of clients, summed over tensors -> [E]

    With directions u = d / |d|, the sum over clients i and j of p_i p_j (1 - <u_i, u_j>) / 2
    equals (1 - |sum_i p_i u_i|^2) / 2: 0 if all directions agree, at most 1/2 in each tensor. The
    weights p of the clients with a nonzero difference are divided by their sum.

    Args:
      summed: `directions` [E, ...] and weights [E], summed over clients.
    """
    return sum(_of_tensor(direction, weight) for direction, weight in summed)


def _direction(d: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    length = d.reshape(*weights.shape, -1).norm(dim=2)
    p = torch.where(length > 0, weights, 0)
    # Without branches, which would wait for the device.
    scale = p / torch.where(length > 0, length, 1)
    return d * tree.along(scale, d), p


def _of_tensor(direction: Tensor, weight: Tensor) -> Tensor:
    """The divergence in one tensor; 0 where all differences are zero -> [E]"""
    mean = direction.reshape(len(weight), -1) / torch.where(weight > 0, weight, 1)[:, None]
    return torch.where(weight > 0, (1 - mean.square().sum(1)).clamp(min=0) / 2, 0)
