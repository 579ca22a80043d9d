"""Measures of recovering clients' hidden clusters and the label shares of their examples.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, section 4.3 and appendices
B and C, which show pictures; FedMix's README, sections 7.2 and 7.5 ask for these numbers.
"""

import numpy as np
import pandas as pd


def top_experts(pi: np.ndarray) -> np.ndarray:
    """The expert of highest weight of each client, the first of equals: [C, E] -> [C] int64"""
    return np.argmax(pi, axis=1)


def purity(choice: np.ndarray, cluster: np.ndarray) -> float:
    """Share of the clients in the commonest cluster of their expert.

    1 if no expert serves two clusters, even if several experts serve one; with one expert it is the
    share of the largest cluster.

    Args:
      choice: [C] the expert of each client.
      cluster: [C] its true cluster, numbers of any kind.
    """
    return float(pd.crosstab(choice, cluster).max(axis="columns").sum() / len(choice))


def num_right(choice: np.ndarray, cluster: np.ndarray) -> int:
    """Number of true clusters whose clients all have one expert that no other client has.

    Args:
      choice: [C] the expert of each client.
      cluster: [C] its true cluster.
    """
    met = pd.DataFrame({"expert": choice, "cluster": cluster}).drop_duplicates()
    shared = met["expert"].duplicated(keep=False) | met["cluster"].duplicated(keep=False)
    return int((~shared).sum())


def total_variation(recovered: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Half the sum of the absolute differences of two distributions; 0 if equal -> [C]

    Args:
      recovered, labels: [C, L] shares of the labels among each client's examples, as the server
        infers them and as they are.
    """
    return np.abs(np.subtract(recovered, labels, dtype=np.float64)).sum(axis=1) / 2


def correlation(recovered: np.ndarray, labels: np.ndarray) -> float:
    """Pearson correlation of the shares, over all labels of all clients; 1 if recovery is exact.

    NaN if either has equal shares for every label of every client.

    Args:
      recovered, labels: [C, L], see `total_variation`.
    """
    return float(pd.Series(np.ravel(recovered)).corr(pd.Series(np.ravel(labels))))
