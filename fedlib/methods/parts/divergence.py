"""How much the clients' updates point in different directions.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724),
appendix D and Figure 1; specification section 7.3.
Deviation: clients whose difference in a tensor is zero have no direction and are left out of it,
the others' weights sum to 1; the paper does not say [R].
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fedlib import tree
from fedlib.tree import Tree


def directions(differences: Tree, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
    """What `divergence` needs the sum of, over clients: p u and p of each tensor.

    Args:
      differences: d, parameters sent minus parameters returned, leaves [C, E, ...].
      weights: p [C, E], at least 0; they need not sum to 1.
    """
    return [_direction(d, weights.to(d.dtype)) for d in tree.leaves(differences)]


def divergence(summed: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Mean of (1 - cosine) / 2 over pairs of clients, summed over tensors -> [E]

    The double sum over the clients i, j of p_i p_j (1 - <u_i, u_j>) / 2, with directions
    u = d / |d|, is (1 - |sum_i p_i u_i|^2) / 2: 0 if all agree, at most 1/2 in each tensor. The
    p are those of the clients that moved, divided by their sum.

    Args:
      summed: `directions` [E, ...] and weights [E], summed over clients.
    """
    return sum(_of_tensor(direction, weight) for direction, weight in summed)


def is_recorded(history: Tensor, round: int) -> bool:
    """Whether the divergence of a round is one of the first that `history` [horizon, E] has."""
    return round < len(history)


def recorded(history: Tensor, round: int, found: Callable[[], Tensor]) -> Tensor:
    """`history` [horizon, E] with what is `found` in a round [E], if it is one of the first."""
    if not is_recorded(history, round):
        return history
    row = torch.full((1,), round, device=history.device)  # a fill: nobody waits for it
    return tree.put(history, row, found()[None])


def _direction(d: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    length = d.reshape(*weights.shape, -1).norm(dim=2)
    p = torch.where(length > 0, weights, 0)
    # Without branches, so that nobody waits for the device.
    scale = p / torch.where(length > 0, length, 1)
    return d * scale.reshape(*weights.shape, *[1] * (d.dim() - 2)), p


def _of_tensor(direction: Tensor, weight: Tensor) -> Tensor:
    """The divergence in one tensor; 0 where nobody moved -> [E]"""
    mean = direction.reshape(len(weight), -1) / torch.where(weight > 0, weight, 1)[:, None]
    agreement = mean.square().sum(1)
    return torch.where(weight > 0, (1 - agreement).clamp(min=0) / 2, 0)
