"""Uniform mixture: Fed-MoE whose experts take from all clients alike.

    E_i <- (1 - lam) E_i + lam mean_j M_j    of every routed expert

What relevance adds is the difference to Fed-MoE. From a shared start all routed experts stay the
same, and the gate has nothing to choose between; from independent ones they approach each other.

Source: an ablation of ours of Jiang et al., "Heterogeneous Federated Learning with Scalable Server
Mixture-of-Experts", IJCAI 2025 (doi 10.24963/ijcai.2025/610), Equation 5.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedlib.methods.fedmoe import FedMoE


@dataclass(frozen=True, kw_only=True)
class UniformMixture(FedMoE):
    """Fed-MoE without relevance in the experts' update; clients still have it in theirs."""

    def client_weights(self, found: Tensor) -> Tensor:
        """The same for every client -> [K, C]"""
        return torch.full_like(found, 1 / found.shape[1])
