"""Tables that a run records after some of its rounds, such as the experts' weights by label."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedlib import tree


def check_rounds(rounds: Sequence[int], first: int = 0) -> None:
    """Raises ValueError unless the rounds of tables ascend, from `first` or more."""
    if list(rounds) != sorted(set(rounds)) or min(rounds, default=first) < first:
        raise ValueError(f"rounds of tables must ascend from {first} or more, got {list(rounds)}")


def record(
    tables: Tensor, rounds: Sequence[int], round: int, found: Callable[[], Tensor]
) -> Tensor:
    """`tables` [S, ...] with `found()` [...] in the row of `round`, if it is one of `rounds` [S]"""
    if round not in rounds:
        return tables
    values = found()
    row = torch.full((1,), rounds.index(round), device=tables.device)  # no wait for the device
    return tree.put(tables, row, values[None])


def diagnostics(rounds: tuple[int, ...], tables: Tensor, **beside: Tensor) -> dict[str, Tensor]:
    """Tables [S, rows, E] of distributions, records `beside` them [S, ...] and rounds [S], by name.

    Rounds that the run did not reach are left out.
    """
    reached = tables.sum((1, 2)) > 0
    numbers = torch.tensor(rounds, device=reached.device)
    recorded = {"tables": tables, "table_rounds": numbers, **beside}
    return {name: values[reached] for name, values in recorded.items()}
