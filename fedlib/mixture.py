"""The mixture-of-experts arithmetic shared by FedEM, pFedMM and the gated methods."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vmap

from fedlib import context, tree
from fedlib.tree import Tree


def each_expert(fn: Callable, experts: Tree) -> Tensor:
    """`fn(expert) -> [B, ...]` of every expert, experts leaves [E, ...] -> [B, E, ...]

    Every expert draws its own dropout masks; those of expert 0 are a single model's.
    """
    numbers = range(len(tree.leaves(experts)[0]))
    if context.experts_are_stacked():
        return vmap(_numbered(fn), out_dims=1)(torch.arange(len(numbers)), experts)
    outputs = [_numbered(fn)(e, x) for e, x in zip(numbers, tree.unstack(experts), strict=True)]
    return torch.stack(outputs, dim=1)


def uniform_weights(num_clients: int, num_experts: int, like: Tensor) -> Tensor:
    """Equal mixture weights, of the dtype and device of `like` -> [num_clients, E]"""
    return like.new_full((num_clients, num_experts), 1 / num_experts)


def responsibilities(weights: Tensor, losses: Tensor) -> Tensor:
    """Posterior of the expert given the example, q proportional to weights * exp(-losses).

    Args:
      weights: [..., E] mixture weights, on the simplex. A weight of 0 stays 0.
      losses: [..., N, E] negative log-likelihood of each example under each expert.

    Returns:
      [..., N, E], summing to 1 over the experts.
    """
    return torch.softmax(weights.log().unsqueeze(-2) - losses, dim=-1)


def mixture_log_probs(weights: Tensor, log_probs: Tensor) -> Tensor:
    """log sum_e weights_e p_e(y | x): weights [E] or [B, E], log_probs [B, E, L] -> [B, L]"""
    return torch.logsumexp(weights.log().unsqueeze(-1) + log_probs, dim=-2)


def expert_losses(log_probs: Tensor, y: Tensor) -> Tensor:
    """Negative log-likelihood of labels [B] under each expert's log_probs [B, E, L] -> [B, E]"""
    index = y[:, None, None].expand(-1, log_probs.shape[1], 1)
    return -log_probs.gather(-1, index).squeeze(-1)


def _numbered(fn: Callable) -> Callable:
    def run(number: Tensor | int, expert: Tree) -> Tensor:
        with context.expert(number):
            return fn(expert)

    return run
