"""Measures of recovering clients' hidden clusters and the label shares of their examples.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, section 4.3 and appendices
B and C, which show pictures; specification sections 7.2 and 7.5 ask for these numbers.
"""

import numpy as np


def assigned(pi: np.ndarray) -> np.ndarray:
    """The expert of highest weight of each client, the first of equals: [C, E] -> [C] int64"""
    return np.argmax(pi, axis=1)


def purity(choice: np.ndarray, cluster: np.ndarray) -> float:
    """Share of the clients in the commonest cluster of their expert.

    1 if no expert serves two clusters, even if several experts serve one; with one expert it is the
    share of the largest cluster.

    Args:
      choice: [C] the expert of each client.
      cluster: [C] its true cluster, numbers of any kind.

    Raises:
      ValueError: if the shapes differ or there are no clients.
    """
    choice, cluster = np.asarray(choice), np.asarray(cluster)
    if choice.shape != cluster.shape or choice.ndim != 1 or not len(choice):
        raise ValueError(
            "experts and clusters must be of the same clients, at least one, got shapes "
            f"{choice.shape} and {cluster.shape}"
        )
    common = [np.unique(cluster[choice == e], return_counts=True)[1].max() for e in set(choice)]
    return float(sum(common) / len(choice))


def num_used(choice: np.ndarray) -> int:
    """Number of distinct experts that clients use: [C] -> 1 ... E"""
    return len(np.unique(choice))


def saturation(pi: np.ndarray) -> float:
    """Mean over clients of their highest weight: 1/E if all are undecided, 1 if none is."""
    return float(np.max(pi, axis=1).mean())


def num_right(choice: np.ndarray, cluster: np.ndarray) -> int:
    """Number of true clusters whose clients all have one expert that no other client has.

    Args:
      choice: [C] the expert of each client.
      cluster: [C] its true cluster.
    """
    choice, cluster = np.asarray(choice), np.asarray(cluster)
    right = 0
    for number in np.unique(cluster):
        inside = set(choice[cluster == number])
        right += len(inside) == 1 and not inside & set(choice[cluster != number])
    return right


def total_variation(recovered: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Half the sum of the absolute differences of two distributions; 0 if equal -> [C]

    Args:
      recovered, labels: [C, L] shares of the labels among each client's examples, as the server
        infers them and as they are.

    Raises:
      ValueError: if the shapes differ.
    """
    return np.abs(_difference(recovered, labels)).sum(axis=1) / 2


def correlation(recovered: np.ndarray, labels: np.ndarray) -> float:
    """Pearson correlation of the shares, over all labels of all clients; 1 if recovery is exact.

    NaN if either has equal shares for every label of every client.

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
