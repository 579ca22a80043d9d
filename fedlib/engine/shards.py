"""Labels and side information of the clients' training examples."""

import numpy as np

from fedlib.errors import DataError
from fedlib.federation import Federation


def shares(federation: Federation, clients: np.ndarray, of: str, num: int) -> np.ndarray:
    """See `Cohort.shares`; `clients` [C] are positions in the federation -> [C, num]"""
    found = counts(federation, clients, of, num)
    found[found.sum(1) == 0] = 1
    return found / found.sum(1, keepdims=True)


def counts(federation: Federation, clients: np.ndarray, of: str, num: int) -> np.ndarray:
    """Number of training examples of each client with each value -> [C, num] int64

    Args:
      of: "label" or "side", whose values are meant.

    Raises:
      DataError: as `Cohort.shares`.
    """
    found = [np.bincount(x, minlength=num) for x in _values(federation, clients, of)]
    if (most := max(map(len, found), default=num)) > num:
        raise DataError(f"{of} must be below {num}, got {most - 1}")
    return np.array(found, np.int64).reshape(-1, num)


def side(federation: Federation, clients: np.ndarray) -> np.ndarray:
    """See `Cohort.side` -> [C, N] int64"""
    given = _values(federation, clients, "side")
    padded = np.zeros((len(clients), max(map(len, given), default=0)), np.int64)
    for row, values in zip(padded, given, strict=True):
        row[: len(values)] = values
    return padded


def _values(federation: Federation, clients: np.ndarray, of: str) -> list[np.ndarray]:
    """Labels or side information of each client's training examples -> C x [N]"""
    pool = federation.y if of == "label" else federation.side
    if pool is None:
        raise DataError("the federation has no side information; condition on labels instead")
    if pool.ndim != 1:
        raise DataError(f"{of} must be one number for each example, got shape {pool.shape}")
    return [pool[federation.train.of(client)] for client in clients.tolist()]
