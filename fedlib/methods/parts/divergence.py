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


def gradient_divergence(differences: Tree, weights: Tensor) -> Tensor:
    """Mean of (1 - cosine) / 2 over pairs of clients, summed over tensors -> []

    The double sum over the clients i, j of p_i p_j (1 - <u_i, u_j>) / 2, with directions
    u = d / |d|, is (1 - |sum_i p_i u_i|^2) / 2: 0 if all agree, at most 1/2 in each tensor.

    Args:
      differences: d, parameters sent minus parameters returned, leaves [C, ...].
      weights: [C], at least 0; p are those of the clients that moved, divided by their sum.
    """
    return sum(_of_tensor(d.reshape(len(d), -1), weights) for d in tree.leaves(differences))


def recorded(history: Tensor, round: int, found: Callable[[], Tensor]) -> Tensor:
    """`history` [horizon, E] with what is `found` in a round [E], if it is one of the first."""
    if round >= len(history):
        return history
    row = torch.full((1,), round, device=history.device)  # a fill: nobody waits for it
    return tree.put(history, row, found()[None])


def _of_tensor(d: Tensor, weights: Tensor) -> Tensor:
    """The divergence of the rows of `d` [C, D]; 0 if nobody moved -> []"""
    length = d.norm(dim=1)
    p = torch.where(length > 0, weights.to(d.dtype), 0)
    total = p.sum()
    # The same values without branches, so that experts can be a dimension of torch.func.vmap.
    scale = p / torch.where(total > 0, total, 1) / torch.where(length > 0, length, 1)
    agreement = (scale @ d).square().sum()
    return torch.where(total > 0, (1 - agreement).clamp(min=0) / 2, 0)
