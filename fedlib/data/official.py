"""Federations whose clients own training and test examples of a data set's own two parts.

Everywhere else in this package a data set is joined and each client's share is split again; here
no training example of the data set becomes a test example. Randomness comes from named streams,
because the official code that these federations follow is not seeded. The federations of FedMix are
made in the same way (its specification, section 5).

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
  FL-IJCAI 2022 (arXiv:2206.07832); EricssonResearch/fl-moe; specification section 4.
Deviation: seeded (X15), and `val_fraction` holds examples out of a client's training part (X6).
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedlib import streams
from fedlib.data.partition import check_count, check_fraction
from fedlib.errors import ConfigError
from fedlib.federation import GROUPS, Federation, Split


class Parts(NamedTuple):
    """A data set, its training part first.

    Attributes:
      x: [N, ...] inputs.
      y: [N] labels.
      num_train: how many of them are training examples.
      num_classes: L.
      mean, std: per channel, see `Federation`.
    """

    x: np.ndarray
    y: np.ndarray
    num_train: int
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Owners(NamedTuple):
    """Rows of each client.

    Attributes:
      train: [C] arrays of int64.
      test: [C] arrays of int64.
    """

    train: list[np.ndarray]
    test: list[np.ndarray]


def federation(
    parts: Parts,
    owners: Owners,
    *,
    val_fraction: float,
    seed: int,
    side: np.ndarray | None = None,
    cluster: np.ndarray | None = None,
) -> Federation:
    """The federation in which everybody is seen; examples that nobody owns are not stored.

    Args:
      parts: the data set.
      owners: rows of it.
      val_fraction: of a client's training examples, 0 for none.
      seed: of the draw of validation examples.
      side: [N] of each example, cluster: [C] of each client, see `Federation`.
    """
    kept = [hold_out(rows, val_fraction, seed, c) for c, rows in enumerate(owners.train)]
    dealt = [fit for fit, _ in kept], [val for _, val in kept], owners.test
    stored = np.unique(np.concatenate([rows for part in dealt for rows in part]))
    train, val, test = (
        Split.from_lists([np.searchsorted(stored, rows) for rows in part]) for part in dealt
    )
    everything = len(stored) == len(parts.x)  # then a copy would only take memory
    x, y, side = (
        array if everything or array is None else array[stored]
        for array in (parts.x, parts.y, side)
    )
    return Federation(
        x=x,
        y=y,
        num_classes=parts.num_classes,
        train=train,
        val=val,
        test=test,
        group=np.full(len(owners.train), GROUPS.index("seen"), np.uint8),
        client_id=np.arange(len(owners.train)),
        mean=parts.mean,
        std=parts.std,
        side=side,
        cluster=cluster,
    )


def with_unseen(federation: Federation, fraction: float, *stream: int | str) -> Federation:
    """The federation in which a random `fraction` of the clients, rounded down, does not train."""
    group = federation.group.copy()
    order = streams.generator(*stream).permutation(len(group))
    group[order[: int(fraction * len(group) + 1e-9)]] = GROUPS.index("unseen")
    return replace(federation, group=group)


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


def deal_evenly(
    part: str, num: int, num_clients: int, size: int | None, draw: np.random.Generator
) -> np.ndarray:
    """Positions in a part of `num` examples, in random order -> [num_clients, size] int64

    Args:
      part: "train" or "test", for the error message.
      num: examples of the part.
      num_clients: who share it.
      size: examples of each client; None deals as many as there are.
      draw: of the order.

    Raises:
      ConfigError: if there are too few examples.
    """
    size = num // num_clients if size is None else size
    check_enough(part, num, num_clients, max(size, 1))
    return draw.permutation(num)[: num_clients * size].reshape(num_clients, size)


def check_enough(part: str, num: int, num_clients: int, size: int) -> None:
    """Raises ConfigError unless `num` examples of a part suffice for clients with `size` each."""
    if num_clients * size > num:
        raise ConfigError(
            f"{num} {part} examples cannot be dealt to {num_clients} clients with {size} "
            f"each; take fewer clients or fewer {part}_examples"
        )


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
