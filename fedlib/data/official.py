"""Federations whose clients own training and test examples of a data set's own two parts.

Everywhere else in this package a data set is joined and each client's share is split again; here
no training example of the data set becomes a test example. Randomness comes from named streams,
because the official code that these federations follow is not seeded.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
  FL-IJCAI 2022 (arXiv:2206.07832); EricssonResearch/fl-moe; specification section 4.
Deviation: seeded (X15), and `val_fraction` holds examples out of a client's training part (X6).
"""

import math
from typing import NamedTuple

import numpy as np

from fedlib import streams
from fedlib.data.partition import check_count, check_fraction
from fedlib.federation import GROUPS, Federation, Split


class Owners(NamedTuple):
    """Rows of each client.

    Attributes:
      train: [C] arrays of int64.
      test: [C] arrays of int64.
    """

    train: list[np.ndarray]
    test: list[np.ndarray]


def federation(
    x: np.ndarray,
    y: np.ndarray,
    owners: Owners,
    *,
    num_classes: int,
    val_fraction: float,
    seed: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Federation:
    """The federation in which everybody is seen; examples that nobody owns are not stored.

    Args:
      x: [N, ...] inputs; y: [N] labels.
      owners: rows of these.
      num_classes: L.
      val_fraction: of a client's training examples, 0 for none.
      seed: of the draw of validation examples.
      mean, std: per channel, see `Federation`.
    """
    kept = [hold_out(rows, val_fraction, seed, c) for c, rows in enumerate(owners.train)]
    parts = [fit for fit, _ in kept], [val for _, val in kept], owners.test
    stored = np.unique(np.concatenate([rows for part in parts for rows in part]))
    train, val, test = (
        Split.from_lists([np.searchsorted(stored, rows) for rows in part]) for part in parts
    )
    everything = len(stored) == len(x)  # then a copy would only take memory
    return Federation(
        x=x if everything else x[stored],
        y=y if everything else y[stored],
        num_classes=num_classes,
        train=train,
        val=val,
        test=test,
        group=np.full(len(owners.train), GROUPS.index("seen"), np.uint8),
        client_id=np.arange(len(owners.train)),
        mean=mean,
        std=std,
    )


def hold_out(
    rows: np.ndarray, fraction: float, seed: int, client: int
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a client that it trains on, and the `fraction` that it validates on."""
    num_val = round_half_up(fraction * len(rows))
    order = streams.generator(seed, "val", client).permutation(len(rows))
    return rows[np.sort(order[num_val:])], rows[np.sort(order[:num_val])]


def round_half_up(value: float) -> int:
    """The nearest integer; a half goes up, also where floating point puts it just below."""
    return math.floor(value + 0.5 + 1e-9)


def set_aside(labels: np.ndarray, every: int) -> tuple[np.ndarray, int]:
    """Rows with a test part at their end, made of every `every`-th example of each class.

    For a data set that comes without one.

    Returns:
      Order of the rows [N] int64, and the number of training examples at its beginning.
    """
    is_test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        is_test[np.flatnonzero(labels == label)[every - 1 :: every]] = True
    return np.argsort(is_test, kind="stable"), int((~is_test).sum())


def check_draws(val_fraction: float, seed: int) -> None:
    """Raises ConfigError unless these parameters of `federation` make sense."""
    check_fraction("val_fraction", val_fraction, zero=True)
    check_count("seed", seed, least=0)
