"""Uniform mixture: Fed-MoE with equal weights of all clients in the experts' updates.

    E_i <- (1 - lam) E_i + lam mean_j M_j    of every routed expert

Its difference from Fed-MoE is the effect of relevance. From a shared start all routed experts stay
equal, and the gate has no choice; from independent starts they approach each other.

Source: an ablation of ours of Jiang et al., "Heterogeneous Federated Learning with Scalable Server
Mixture-of-Experts", IJCAI 2025 (doi 10.24963/ijcai.2025/610), Equation 5.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedlib.methods.fedmoe import FedMoE


@dataclass(frozen=True, kw_only=True)
class UniformMixture(FedMoE):
    """Fed-MoE without relevance in the experts' update; the clients' update still has it."""

    look = "Uniform mixture", "#D98CB3", (8, 0, 22), "dashed"

    def client_weights(self, found: Tensor) -> Tensor:
        """Equal weights for all clients -> [K, C]"""
        return torch.full_like(found, 1 / found.shape[1])
