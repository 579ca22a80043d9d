"""Random draws that several partitions and sources share.

Draws from `random.Random` and `numpy.random.RandomState` repeat the papers' public code, generator
and order included, so that the same seed gives the same clients. Global generators are not used.

Source: pFedMM and FedEM (Marfoq et al., NeurIPS 2021), data preparation of the official code;
  pFedMM's specification, sections 3.2 to 3.8.
"""

import math
import random

import numpy as np

from fedlib.errors import ConfigError, DataError


def subset(draw: random.Random, num: int, fraction: float, at_least: int) -> list[int]:
    """A random `fraction` of range(num), in random order.

    Raises:
      ConfigError: for fewer than `at_least` numbers.
    """
    if (size := int(num * fraction)) < at_least:
        raise ConfigError(
            f"{size} examples (fraction {fraction} of {num}) cannot be dealt to {at_least} "
            "clients or shards; take fewer of these or a larger fraction"
        )
    return draw.sample(range(num), size)


def chunks(items: list, num: int) -> list[list]:
    """`items` in `num` consecutive chunks; the last len(items) mod num have one item more."""
    base, longer = divmod(len(items), num)
    ends = [base * (i + 1) + max(0, i + 1 - (num - longer)) for i in range(num)]
    return [items[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def dirichlet(
    draw: np.random.RandomState | np.random.Generator, alpha: float, size: int
) -> np.ndarray:
    """Shares that sum to 1 -> [size] float64

    Raises:
      ConfigError: if `alpha` is so small that every share underflows to 0, or so large that their
        sum overflows.
    """
    shares = draw.dirichlet(np.full(size, alpha))
    if not abs(shares.sum() - 1) < 1e-6:  # NaN, too
        extreme = "small" if alpha < 1 else "large"
        raise ConfigError(f"alpha of a Dirichlet draw is too {extreme}, got {alpha}; 1 is uniform")
    return shares


def draw_some(clients: list, fraction: float, seed: int) -> list:
    """A random `fraction` of the natural clients of a data set, in random order (section 3.8)."""
    draw = random.Random(seed)
    clients = list(clients)
    draw.shuffle(clients)
    clients = clients[: int(len(clients) * fraction)]
    draw.shuffle(clients)
    return clients


def check_enough_writers(num_clients: int | None, there: int) -> None:
    """Raises DataError if there are fewer writers than clients; `num_clients` None is all."""
    if num_clients is not None and there < num_clients:
        raise DataError(f"num_clients is {num_clients}, but only {there} writers are there")


def split_in_two(num: int, num_last: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the two parts of `num` items, scikit-learn's train_test_split (section 3.6).

    Returns:
      The first `num - num_last` and the last `num_last`, each shuffled: two int64 arrays.
    """
    order = np.random.RandomState(seed).permutation(num)
    return order[num_last:], order[:num_last]


def divide(rows: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """floor(fraction * n) random rows and the rest, each shuffled (section 3.6, train_size)."""
    first, second = split_in_two(len(rows), len(rows) - math.floor(fraction * len(rows)), seed)
    return rows[first], rows[second]


def unseen_clients(num_clients: int, fraction: float, seed: int) -> np.ndarray:
    """Numbers of the clients set apart from training (section 3.6) -> [ceil(fraction * C)] int64"""
    return split_in_two(num_clients, math.ceil(fraction * num_clients), seed)[1]


def some_are_unseen(num_clients: int, fraction: float, seed: int) -> np.ndarray:
    """Group of each client, an index into `GROUPS`, the unseen ones drawn -> [C] uint8"""
    return np.isin(np.arange(num_clients), unseen_clients(num_clients, fraction, seed)).astype("u1")


def last_are_unseen(num_clients: int, fraction: float) -> np.ndarray:
    """Groups of clients in random order: the first int((1 - fraction) * C) are seen (section 3.8).

    Returns:
      [C] uint8, as `some_are_unseen`.
    """
    num_seen = int((1 - fraction) * num_clients + 1e-9)  # as a float, (1 - 0.9) * 10 is below 1
    return (np.arange(num_clients) >= num_seen).astype(np.uint8)


def as_rows(clients: list[list[int]]) -> list[np.ndarray]:
    """Row numbers of each client as arrays -> [C] arrays of int64"""
    return [np.array(rows, dtype=np.int64) for rows in clients]
