"""Choosing among models by their losses, now and then at random.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
FL-IJCAI 2022 (arXiv:2206.07832), Algorithm 3. The schedules are those of its code.
Official code: EricssonResearch/fl-moe, main_fed.py (`do_explore`); specification section 2.3.
"""

import math

import numpy as np
import torch
from torch import Tensor

from fedlib import streams

EXPLORATIONS = ("none", "eps", "eps_decay", "eps_decay_b", "eps_decay_k")


def probability(
    exploration: str, round: float, *, epsilon: float, horizon: int, num_models: int
) -> float:
    """Probability that a client explores in `round`, counted from 0.

    Args:
      exploration: "none" 0; "eps" `epsilon`; "eps_decay" 1 / (t + 1); "eps_decay_b"
        (t + 1)^-b, which falls to `epsilon` at an eighth of the `horizon`; "eps_decay_k"
        (t + 1)^(-2 / `num_models`).
    """
    match exploration:
        case "none":
            return 0.0
        case "eps":
            return epsilon
        case "eps_decay":
            return 1 / (round + 1)
        case "eps_decay_b":
            return (round + 1) ** (math.log(epsilon) / math.log(horizon / 8 + 1))
        case "eps_decay_k":
            return (round + 1) ** (-2 / num_models)
    raise ValueError(f"exploration must be one of {EXPLORATIONS}, got {exploration!r}")


def choose(losses: Tensor, explore: float, clients: np.ndarray, *stream: int | str) -> Tensor:
    """The model of least loss for each client, or with probability `explore` any -> [C] int64

    Ties are broken at random. Of one model nothing is drawn.

    Args:
      losses: [C, E], finite.
      clients: [C] whose losses these are. What a client draws is a function of the stream and of
        its number alone.
    """
    if losses.shape[1] == 1:
        return torch.zeros(len(losses), dtype=torch.int64, device=losses.device)
    draws = streams.generator(*stream).random((int(clients.max()) + 1, 2))[clients]
    draws = torch.from_numpy(draws).to(losses.device)
    explores = draws[:, :1] < explore
    lowest = losses == losses.min(1, keepdim=True).values
    return nth(lowest | explores, draws[:, 1])


def nth(candidates: Tensor, at: Tensor) -> Tensor:
    """The candidate at the fraction `at` of each row, rounded down -> [C] int64

    Args:
      candidates: [C, E] bool, at least one in each row.
      at: [C] in [0, 1); uniform numbers make a uniform draw.
    """
    number = (at * candidates.sum(1)).long()
    return (candidates.cumsum(1) <= number[:, None]).sum(1)
