"""Choice among models by their losses, or at random with a given probability.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
FL-IJCAI 2022 (arXiv:2206.07832), Algorithm 3. The schedules are from its code.
Official code: EricssonResearch/fl-moe, main_fed.py (`do_explore`); section 2.3 of
fedlib/papers/adaptive_experts/README.md.
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
    """Probability that a client explores in `round` t, counted from 0.

    Args:
      exploration: the schedule. "none" is 0; "eps" is `epsilon`; "eps_decay" is 1 / (t + 1);
        "eps_decay_b" is (t + 1)^-b, which equals `epsilon` at an eighth of the `horizon`;
        "eps_decay_k" is (t + 1)^(-2 / `num_models`).
      epsilon: in [0, 1]; above 0 for "eps_decay_b".
      horizon: rounds of the run.
      num_models: the paper's J.

    Raises:
      ValueError: for another `exploration`.
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
    """For each client the model of lowest loss, or any with probability `explore` -> [C] int64

    Ties are broken at random. With a single model, no random number is drawn.

    Args:
      losses: [C, E], finite.
      explore: probability of a uniform choice, in [0, 1].
      clients: [C] numbers of the clients. A client's draw depends only on the stream and on its
        number.
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
