"""Relevance of clients for the server's experts, and the weights that Fed-MoE makes of it.

    R = Q^T P^T    how far client j is right, and sure of it, where the gate trusts expert i

Source: Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025 (doi 10.24963/ijcai.2025/610), Equations 4 to 6 and 11 to 13.
Official code: FancyAI-SCNU/FedMoE_IJCAI_2025.
"""

import torch
from torch import Tensor

from fedlib import tree
from fedlib.tree import Tree

REDUCTIONS = ("sum", "mean")
SYNC_WEIGHTS = ("code", "paper", "convex")


def relevance(gates: Tensor, confidence: Tensor, reduce: str = "sum") -> Tensor:
    """Of each client for each routed expert (Equation 4) -> [K, C]

    Args:
      gates: [N, K] of the probe's examples.
      confidence: [C, N] each client's, in the true label.
      reduce: over the examples, "sum" or "mean".

    Raises:
      ValueError: for another `reduce`.
    """
    if reduce not in REDUCTIONS:
        raise ValueError(f"relevance is reduced by one of {REDUCTIONS}, got {reduce!r}")
    total = torch.einsum("nk,cn->kc", gates, confidence)
    return total if reduce == "sum" else total / len(gates)


def client_weights(relevance: Tensor) -> Tensor:
    """W^r: what each expert takes from each client (Equation 5); rows sum to 1 -> [K, C]

    An expert that no example reaches takes from all alike.
    """
    return relevance.softmax(1)


def sync_weights(relevance: Tensor, alpha: Tensor, kind: str, main: bool = True) -> Tensor:
    """W^c: what each client takes from each expert; columns sum to 1 -> [K + 1, C]

    Args:
      relevance: [K, C].
      alpha: [] share of the routed experts.
      kind: "code", a softmax over alpha times what the experts have of a client, itself a softmax,
        and 1 - alpha: never far from uniform; "paper", one softmax over alpha times the relevance
        and 1 - alpha (Equations 11 and 12): with sums over many examples the largest takes all; or
        "convex", those shares without a second softmax, which needs alpha in [0, 1].
      main: whether there is a main expert, whose row is the last; else there are K rows, and alpha
        plays no part.

    Raises:
      ValueError: for another kind.
    """
    if kind not in SYNC_WEIGHTS:
        raise ValueError(f"sync_weights must be one of {SYNC_WEIGHTS}, got {kind!r}")
    rows = relevance if kind == "paper" else relevance.softmax(0)
    if main:
        last = (1 - alpha).expand(1, rows.shape[1])
        rows = torch.cat([alpha * rows, last])
    return rows if kind == "convex" else rows.softmax(0)


def moved_towards(old: Tree, new: Tree, lam: float) -> Tree:
    """Moving average (1 - lam) old + lam new of all entries, running statistics included."""
    return tree.map(lambda x, y: (1 - lam) * x + lam * y, old, new)
