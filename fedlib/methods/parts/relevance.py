"""Relevance of clients for the server's experts, and the weights W^r and W^c of Fed-MoE.

    R = Q^T P^T    R_ij: confidence of client j in the true labels, where the gate uses expert i

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


def relevance(gates: Tensor, confidence: Tensor, reduce: str) -> Tensor:
    """R, the relevance of each client for each routed expert (Equation 4) -> [K, C]

    Args:
      gates: [N, K] Q, gate weights of the probe's examples.
      confidence: [C, N] P, each client's confidence in the true label.
      reduce: over the examples, "sum" or "mean".
    """
    total = torch.einsum("nk,cn->kc", gates, confidence)
    return total if reduce == "sum" else total / len(gates)


def sync_weights(relevance: Tensor, alpha: Tensor, kind: str, main: bool) -> Tensor:
    """W^c: weights of the experts in each client's update; columns sum to 1 -> [K + 1, C]

    Args:
      relevance: [K, C] R.
      alpha: [] share of the routed experts.
      kind: with S the softmax of R over experts: "code" is softmax([alpha S; 1 - alpha]), never far
        from uniform; "paper" is softmax([alpha R; 1 - alpha]) (Equations 11 and 12), which is
        nearly one-hot if R is a sum over many examples; "convex" is [alpha S; 1 - alpha], which
        needs alpha in [0, 1].
      main: whether there is a main expert, whose row is the last; without it there are K rows, and
        alpha is not used.
    """
    rows = relevance if kind == "paper" else relevance.softmax(0)
    if main:
        last = (1 - alpha).expand(1, rows.shape[1])
        rows = torch.cat([alpha * rows, last])
    return rows if kind == "convex" else rows.softmax(0)


def move_towards(old: Tree, new: Tree, lam: float) -> Tree:
    """Moving average (1 - lam) old + lam new of all entries, running statistics included."""
    return tree.map(lambda x, y: (1 - lam) * x + lam * y.to(x.device), old, new)
