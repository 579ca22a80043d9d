"""Diagnostics of some rounds of Fed-MoE: gate weights by class, alpha, W^r and W^c."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.methods.parts import server_mixture


class Log(NamedTuple):
    """Diagnostics of S recorded rounds; 0 before a round, and for absent clients."""

    tables: Tensor  # [S, L, K] mean gate weights by class, on the probe
    table_alphas: Tensor  # [S] alpha
    client_weights: Tensor  # [S, num_clients, K] transposed W^r, of the last inner step
    sync_weights: Tensor  # [S, num_clients, K + 1] transposed W^c; [..., K] without main expert


def start(
    rounds: int, num_clients: int, num_labels: int, num_experts: int, main: bool, like: Tensor
) -> Log:
    """The log before the first round; `main`: whether there are main experts."""
    return Log(
        like.new_zeros(rounds, num_labels, num_experts),
        like.new_zeros(rounds),
        like.new_zeros(rounds, num_clients, num_experts),
        like.new_zeros(rounds, num_clients, num_experts + main),
    )


def noted(
    log: Log,
    row: int,
    probe: Cohort,
    cohort: Cohort,
    query: Tensor,
    alpha: Tensor,
    weights: Tensor,
    shares: Tensor | None,
) -> Log:
    """`log` with a round in its `row`.

    Args:
      query: [N, K] gate weights of the examples of `probe`.
      alpha: [] share of the routed experts.
      weights: [K, C] W^r.
      shares: [K + 1, C] W^c; None without synchronisation.
    """
    log, data = tree.clone(log), cohort.data
    y = data.y[data.owned("train", int(probe.host_ids[0]))]
    num_labels = log.tables.shape[1]
    mass = server_mixture.class_mass(query, y, num_labels).T
    count = torch.bincount(y.long(), minlength=num_labels).clamp(min=1)
    log.tables[row] = mass / count[:, None]
    log.table_alphas[row] = alpha
    log.client_weights[row, cohort.ids] = weights.T
    if shares is not None:
        log.sync_weights[row, cohort.ids] = shares.T
    return log


def diagnostics(log: Log, rounds: tuple[int, ...]) -> dict[str, Tensor]:
    """The log by name, and the rounds of its rows, for the rounds reached.

    Args:
      rounds: of all rows.
    """
    reached = log.tables.sum((1, 2)) > 0
    numbers = torch.tensor(rounds, device=reached.device)
    written = {name: value[reached] for name, value in log._asdict().items()}
    return written | {"table_rounds": numbers[reached]}
