"""Labels and side information of the clients' training examples."""

import numpy as np

from fedlib.errors import DataError
from fedlib.federation import Federation


def shares(federation: Federation, clients: np.ndarray, of: str, num: int) -> np.ndarray:
    """See `Cohort.shares`; `clients` [C] are positions in the federation -> [C, num]"""
    counts = np.zeros((len(clients), num))
    for row, values in zip(counts, _given(federation, clients, of), strict=True):
        found = np.bincount(values, minlength=num)
        if len(found) > num:
            raise DataError(f"{of} must be below {num}, got {len(found) - 1}")
        row += found if len(values) else 1
    return counts / counts.sum(1, keepdims=True)


def side(federation: Federation, clients: np.ndarray) -> np.ndarray:
    """See `Cohort.side` -> [C, N] int64"""
    given = _given(federation, clients, "side")
    padded = np.zeros((len(clients), max(map(len, given), default=0)), np.int64)
    for row, values in zip(padded, given, strict=True):
        row[: len(values)] = values
    return padded


def _given(federation: Federation, clients: np.ndarray, of: str) -> list[np.ndarray]:
    """Labels or side information of each client's training examples -> C x [N]"""
    pool = federation.y if of == "label" else federation.side
    if pool is None:
        raise DataError("the federation has no side information; condition on labels instead")
    if pool.ndim != 1:
        raise DataError(f"{of} must be one number for each example, got shape {pool.shape}")
    return [pool[federation.train.of(client)] for client in clients.tolist()]
