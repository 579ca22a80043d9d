"""Gates of FedMix: a linear layer on pooled features says how much each expert counts.

    h(x)   = sum_e q_e h_e(x)              h_e(x): what the head of expert e is fed with
    p(e|x) = softmax_e(A^T h(x) + b)       q: the client's marginal q(e|s), its pooling weights

A gate is {"A": [F, E], "b": [E]}; F is the number of features. Everything here is of ONE client's
batch, and in log space. An expert that a client does not have is masked: the gate is renormalised
over the others.

Source: "Federated Mixture of Experts", equations of the gate and of p(z|x) for a new shard;
specification sections 1.1, 2.1 and 3.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedlib.engine.experts import each_expert, mixture_log_probs
from fedlib.engine.task import Batch, Params, Task, log_probs

Gate = dict[str, Tensor]
Outputs = tuple[Tensor, Tensor]  # features [B, E, F] and log-probabilities [B, E, L] of experts

BLOCK = 2**24  # numbers in the pooled features of all clients that are in memory at once


class Known(NamedTuple):
    """A client with a gate."""

    experts: Params  # [E, ...]
    gate: Gate
    pooling: Tensor  # [E]
    keep: Tensor  # [E] bool, the experts that it has

    def log_weights(self, features: Tensor) -> Tensor:
        """log p(e|x) from the experts' features [B, E, F] -> [B, E]"""
        return log_weights(self.gate, pool(self.pooling, features), self.keep)


class Anybody(NamedTuple):
    """Whoever knows no more of a shard than that it might be that of any seen client."""

    experts: Params  # [E, ...]
    gates: Gate  # leaves [S, ...] of the seen clients; or the one that they share
    pooling: Tensor  # [S, E]
    log_prior: Tensor  # [S], of p(s)

    def log_weights(self, features: Tensor) -> Tensor:
        """log p(e|x) from the experts' features [B, E, F] -> [B, E]"""
        return marginalised(self.gates, self.pooling, self.log_prior, features)


def uniform(num_features: int, num_experts: int, like: Tensor) -> Gate:
    """A gate that trusts all experts alike: zeros, of the dtype and device of `like`."""
    return {
        "A": like.new_zeros(num_features, num_experts),
        "b": like.new_zeros(num_experts),
    }


def features_of(task: Task) -> int:
    """F, inputs of the head: of its first matrix.

    Raises:
      ValueError: if the head has no matrix.
    """
    _, head = task.split(task.init(0))
    matrices = [value for value in head.values() if value.dim() == 2]
    if not matrices:
        raise ValueError(f"a gate needs a model with a linear head, got {sorted(head) or 'none'}")
    return matrices[0].shape[1]


def outputs(task: Task, experts: Params, batch: Batch) -> Outputs:
    """What experts [E, ...] make of a batch: features [B, E, F], log-probabilities [B, E, L]"""
    _, head = task.split(experts)
    # Of whole experts, as a linear model's body has nothing that would say how many there are.
    features = each_expert(lambda expert: task.features(task.split(expert)[0], batch), experts)
    logits = each_expert(
        lambda pair: task.head_logits(*pair, batch), (head, features.movedim(1, 0))
    )
    return features, log_probs(logits)


def decide(personal: Known | Anybody, features: Tensor, log_probs: Tensor) -> Tensor:
    """The mixture of the experts' probabilities, from their `outputs` -> [B, L]"""
    return mixture_log_probs(personal.log_weights(features), log_probs)


def pool(weights: Tensor, features: Tensor) -> Tensor:
    """Features [B, E, F] of the experts, added up with `weights` [E] -> [B, F]"""
    return torch.einsum("e,bef->bf", weights, features)


def log_weights(gate: Gate, pooled: Tensor, keep: Tensor | None = None) -> Tensor:
    """log p(e|x) from pooled features [B, F] -> [B, E]

    Args:
      gate: see the module.
      pooled: as `pool` makes them.
      keep: [E] bool, experts that there are; None is all. The others get -inf.
    """
    return masked(pooled @ gate["A"] + gate["b"], keep).log_softmax(-1)


def masked(logits: Tensor, keep: Tensor | None) -> Tensor:
    """-inf in place of the logits [..., E] that `keep` [..., E] says no to; None keeps all."""
    return logits if keep is None else torch.where(keep, logits, -torch.inf)


def marginalised(gates: Gate, pooling: Tensor, log_prior: Tensor, features: Tensor) -> Tensor:
    """log sum_s p(s) p_s(e|x), what anybody would make of an input of unknown origin -> [B, E]

    No expert is evaluated more than once: clients only pool their features differently. They do
    so in blocks, whose pooled features fit into memory.

    Args:
      gates: leaves [S, ...] of S clients; or one that they all share, leaves as in the module.
      pooling: [S, E] the clients' pooling weights.
      log_prior: [S], or [B, S] where p(s|x) depends on the example; logarithms of a distribution.
      features: [B, E, F].
    """
    log_prior = log_prior.expand(len(features), len(pooling))
    block = max(1, BLOCK // max(1, features[:, 0].numel()))
    parts = [
        (log_prior[:, some, None] + _by_client(gates, pooling, features, some)).logsumexp(1)
        for some in (slice(i, i + block) for i in range(0, len(pooling), block))
    ]
    return torch.stack(parts).logsumexp(0)


def _by_client(gates: Gate, pooling: Tensor, features: Tensor, some: slice) -> Tensor:
    """log p_s(e|x) of some clients -> [B, S, E]"""
    if gates["A"].dim() == 2:  # then it can come first: it is the same for all clients
        logits = torch.einsum("se,bek->bsk", pooling[some], features @ gates["A"]) + gates["b"]
    else:
        pooled = torch.einsum("se,bef->bsf", pooling[some], features)
        logits = torch.einsum("bsf,sfk->bsk", pooled, gates["A"][some]) + gates["b"][some]
    return logits.log_softmax(-1)
