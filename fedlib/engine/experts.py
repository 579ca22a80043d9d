"""Functions for mixtures: the draw of experts, and the arithmetic of weights and losses."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fedlib import streams, tree
from fedlib.engine import ambient
from fedlib.engine.task import Params, Task, element_nll, mean_from
from fedlib.errors import ConfigError
from fedlib.fields import Range
from fedlib.tree import Tree

NUMBERS = Range(1, 1000)  # of experts; more would fill a memory slowly, without a message


def draw_experts(
    task: Task, num_experts: int, seed: int, part: Callable[[Params], Params] = lambda whole: whole
) -> Params:
    """Fresh parameters of all experts of a run, with the seeds of `expert_seed` -> [E, ...]

    Args:
      part: what an expert has of the parameters of a whole model.

    Raises:
      ConfigError: for a model that is the same for every seed.
    """
    drawn = [task.init(expert_seed(seed, e)) for e in range(num_experts)]
    if num_experts > 1 and all(torch.equal(x, drawn[1][name]) for name, x in drawn[0].items()):
        raise ConfigError(
            "all experts start with the same weights, and would stay equal; give the model's last "
            "layer a reset_parameters, which draws its weights"
        )
    return tree.stack([*map(part, drawn)])


def expert_seed(seed: int, expert: int) -> int:
    """Seed of the parameters of expert number `expert` in the run of `seed`.

    Expert 0 is the single model that other methods draw from `seed`, so a mixture of one expert
    starts from the same parameters. Every other expert has its own random stream. The code of FedEM
    and pFedMM adds the number to the seed; runs with neighbouring seeds then share all experts but
    one.

    Args:
      seed: of the run.
      expert: its number; a module that is drawn after the experts, such as a gate, has number E.
    """
    return int(streams.keys(1, seed, "expert", expert)[0]) if expert else seed


def each_expert(fn: Callable, experts: Tree) -> Tensor:
    """`fn(expert) -> [B, ...]` of every expert, from leaves [E, ...] -> [B, E, ...]

    Every expert draws its own dropout masks; those of expert 0 are a single model's.
    """
    if ambient.experts_are_stacked():
        first = tree.leaves(experts)[0]
        numbers = torch.arange(len(first), device=first.device)
        return vmap(partial(_run, fn), out_dims=1)(numbers, experts)
    outputs = [_run(fn, e, expert) for e, expert in enumerate(tree.unstack(experts))]
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


def pad_scores(scores: Tensor, sizes: np.ndarray) -> Tensor:
    """Scores [C, N, ...] with zeros up to the largest of the `sizes` of all clients.

    Their shape is then the same for every cohort, so steps that read them are traced or captured
    once, not in each round.
    """
    more = int(sizes.max()) - scores.shape[1]
    return torch.nn.functional.pad(scores, [0, 0] * (scores.dim() - 2) + [0, more])


def mixture_log_probs(log_weights: Tensor, log_probs: Tensor) -> Tensor:
    """log sum_e weights_e p_e(y | x): a mixture of probabilities, not of logits -> [B, (T,) L]

    Args:
      log_weights: [E], or [B, E] if they depend on the example; -inf for experts without weight.
      log_probs: [B, E, L], or [B, E, T, L]; the labels of a sequence are mixed one by one.
    """
    trailing = [1] * (log_probs.dim() - 2)
    return (log_weights.reshape(*log_weights.shape, *trailing) + log_probs).logsumexp(1)


def expert_losses(log_probs: Tensor, y: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """Negative log-likelihood of each example under each expert -> [B, E]

    Args:
      log_probs: [B, E, L], or [B, E, T, L] for sequences: the mean over their T labels.
      y: [B] or [B, T] labels.
      class_weights: [L], factors of the loss of each label; see `Task`.
    """
    y = y.unsqueeze(1).expand(log_probs.shape[:-1])
    return mean_from(2, element_nll(log_probs, y, class_weights))


def _run(fn: Callable, number: Tensor | int, expert: Tree) -> Tensor:
    with ambient.expert(number):
        return fn(expert)
