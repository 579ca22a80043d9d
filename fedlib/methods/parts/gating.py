"""Gates of FedMix: a linear layer on pooled features gives the weight of each expert.

    h(x)   = sum_e q_e h_e(x)              h_e(x): the input of expert e's head
    p(e|x) = softmax_e(A^T h(x) + b)       q: the client's marginal q(e|s), its pooling weights

A gate is {"A": [F, E], "b": [E]}; F is the number of features. All functions take ONE client's
batch and compute in log space. Experts that a client does not have are masked: the gate is
renormalised over the others.

Source: "Federated Mixture of Experts", equations of the gate and of p(z|x) for a new shard;
sections 1.1, 2.1 and 3 of fedlib/papers/fedmix/README.md.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedlib.engine.experts import each_expert
from fedlib.engine.task import Batch, Params, Task, log_probs

Gate = dict[str, Tensor]
Outputs = tuple[Tensor, Tensor]  # features [B, E, F] and log-probabilities [B, E, L] of experts

BLOCK = 2**24  # pooled features, as numbers over all clients, that are in memory at once


class GatedClient(NamedTuple):
    """A client with a gate."""

    experts: Params  # [E, ...]
    gate: Gate
    pooling: Tensor  # [E]
    keep: Tensor  # [E] bool, the experts that it has

    def log_weights(self, features: Tensor) -> Tensor:
        """log p(e|x) from the experts' features [B, E, F] -> [B, E]"""
        return log_weights(self.gate, pool(self.pooling, features), self.keep)


class UnknownClient(NamedTuple):
    """A predictor for a shard of unknown origin: it may belong to any seen client."""

    experts: Params  # [E, ...]
    gates: Gate  # leaves [S, ...] of the seen clients, or the gate that they share
    pooling: Tensor  # [S, E]
    log_prior: Tensor  # [S], of p(s)

    def log_weights(self, features: Tensor) -> Tensor:
        """log p(e|x) from the experts' features [B, E, F] -> [B, E]"""
        return marginalise(self.gates, self.pooling, self.log_prior, features)


Predictor = GatedClient | UnknownClient


def uniform(num_features: int, num_experts: int, like: Tensor) -> Gate:
    """A gate that gives all experts the same weight: zeros, of `like`'s dtype and device."""
    return {"A": like.new_zeros(num_features, num_experts), "b": like.new_zeros(num_experts)}


def outputs(task: Task, experts: Params, batch: Batch) -> Outputs:
    """Features [B, E, F] and log-probabilities [B, E, L] of the experts [E, ...]."""
    _, head = task.split(experts)
    # Whole experts, as the body of a linear model is empty and would not show their number.
    features = each_expert(lambda expert: task.features(task.split(expert)[0], batch), experts)
    pairs = head, features.movedim(1, 0)
    logits = each_expert(lambda pair: task.head_logits(*pair, batch), pairs)
    return features, log_probs(logits)


def pool(weights: Tensor, features: Tensor) -> Tensor:
    """Sum of the experts' features [B, E, F], weighted by `weights` [E] -> [B, F]"""
    return torch.einsum("e,bef->bf", weights, features)


def log_weights(gate: Gate, pooled: Tensor, keep: Tensor | None = None) -> Tensor:
    """log p(e|x) from pooled features [B, F] -> [B, E]

    Args:
      gate: see the module.
      pooled: result of `pool`.
      keep: [E] bool, the experts that the client has; None is all. The others get -inf.
    """
    return mask(pooled @ gate["A"] + gate["b"], keep).log_softmax(-1)


def mask(logits: Tensor, keep: Tensor | None) -> Tensor:
    """The logits [..., E], but -inf where `keep` [..., E] is False; None keeps all."""
    return logits if keep is None else torch.where(keep, logits, -torch.inf)


def marginalise(gates: Gate, pooling: Tensor, log_prior: Tensor, features: Tensor) -> Tensor:
    """log sum_s p(s) p_s(e|x), the gate for an input of unknown origin -> [B, E]

    Each expert is evaluated once, as clients differ only in the pooling of features. Clients are
    computed in blocks whose pooled features fit into memory.

    Args:
      gates: leaves [S, ...] of S clients, or a single gate that they share.
      pooling: [S, E] the clients' pooling weights.
      log_prior: [S], or [B, S] where p(s|x) depends on the example; log of a distribution.
      features: [B, E, F].
    """
    log_prior = log_prior.expand(len(features), len(pooling))
    block = max(1, BLOCK // max(1, features[:, 0].numel()))
    parts = []
    for first in range(0, len(pooling), block):
        some = slice(first, first + block)
        joint = log_prior[:, some, None] + _by_client(gates, pooling, features, some)
        parts.append(joint.logsumexp(1))
    return torch.stack(parts).logsumexp(0)


def _by_client(gates: Gate, pooling: Tensor, features: Tensor, some: slice) -> Tensor:
    """log p_s(e|x) of some clients -> [B, S, E]"""
    if gates["A"].dim() == 2:  # a shared gate can be applied before pooling
        logits = torch.einsum("se,bek->bsk", pooling[some], features @ gates["A"]) + gates["b"]
    else:
        pooled = torch.einsum("se,bef->bsf", pooling[some], features)
        logits = torch.einsum("bsf,sfk->bsk", pooled, gates["A"][some]) + gates["b"][some]
    return logits.log_softmax(-1)
