"""How well label distributions were recovered from updates, see `fedlib.methods.label_leakage`.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, appendix C, which only has
a picture; specification section 7.5. This module is free of PyTorch.
"""

import numpy as np


def total_variation(recovered: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Half the sum of the absolute differences of two distributions; 0 if equal -> [C]

    Args:
      recovered, labels: [C, L] shares of the labels among each client's examples, as the server
        thinks and as they are.

    Raises:
      ValueError: if the shapes differ.
    """
    return np.abs(_difference(recovered, labels)).sum(axis=1) / 2


def correlation(recovered: np.ndarray, labels: np.ndarray) -> float:
    """Pearson correlation of the shares, over all labels of all clients; 1 if recovery is exact.

    NaN if either says the same of every label of every client.

    Args:
      recovered, labels: [C, L], see `total_variation`.

    Raises:
      ValueError: if the shapes differ.
    """
    _difference(recovered, labels)
    a, b = (np.asarray(x, np.float64) - np.mean(x) for x in (recovered, labels))
    scale = np.sqrt((a**2).sum() * (b**2).sum())
    return float((a * b).sum() / scale) if scale > 0 else float("nan")


def _difference(recovered: np.ndarray, labels: np.ndarray) -> np.ndarray:
    if np.shape(recovered) != np.shape(labels) or np.ndim(labels) != 2:
        raise ValueError(
            "recovered and true shares must both be [clients, labels], got "
            f"{np.shape(recovered)} and {np.shape(labels)}"
        )
    return np.subtract(recovered, labels, dtype=np.float64)
