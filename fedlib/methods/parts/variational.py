"""The variational table of FedMix, the pruning by it, and what the server makes of both.

The table phi [R, E] has a row for each value c of what q depends on (a label, or other side
information of an example): q(e|c) = softmax_e phi[c]. A client's marginal is the mean of its
examples' rows, q(e|s) = sum_c p(c|s) q(e|c).

Source: "Federated Mixture of Experts", the lower bound and Algorithms 1 and 2; specification
sections 1, 2 and 2.1.
Deviation: a client whose marginal has moved so far that every expert it was sent is below the
threshold keeps the most probable of them; the paper's bound of eta by 1 only says that some expert
is above it, not that it was sent.
"""

import torch
from torch import Tensor
from torch.func import vmap

from fedlib import tree
from fedlib.engine.task import Params, Task
from fedlib.methods.parts.divergence import gradient_divergence
from fedlib.methods.parts.gating import masked
from fedlib.methods.parts.server_adam import ServerAdam
from fedlib.tree import Tree

SENT_SHARE = 0.9  # of the threshold, which is lower for what is sent than for what is used
ROUNDING = 16  # units in the last place that a marginal may be off


def marginal(shares: Tensor, phi: Tensor) -> Tensor:
    """q(e|s) = sum_c p(c|s) q(e|c) -> [..., E]

    Args:
      shares: [..., R] p(c|s).
      phi: [R, E], or [..., R, E] where clients have tables of their own.
    """
    return (shares.unsqueeze(-1) * phi.softmax(-1)).sum(-2)


def bound(q: Tensor, log_likelihood: Tensor, log_gate: Tensor, kept: Tensor | None = None):
    """sum_e q_e (log p_e(y|x) + log p(e|x)) of every example, to be maximised -> [B]

    Args:
      q: [B, E] of the examples' labels or side information.
      log_likelihood: [B, E] of the experts.
      log_gate: [B, E].
      kept: [B, E] in place of q for the experts' part, which alone knows of pruning.
    """
    return ((q if kept is None else kept) * log_likelihood + q * log_gate).sum(-1)


def entropy(logits: Tensor) -> Tensor:
    """Entropy of softmax(logits [..., E]), in nats -> [...]"""
    log_q = logits.log_softmax(-1)
    return -(log_q.exp() * log_q).sum(-1)


# -- pruning ----------------------------------------------------------------------------


def sent(stored: Tensor, eta: float) -> Tensor:
    """Which experts go to clients of whom the server has `stored` marginals -> [C, E] bool"""
    return _reaches(stored, SENT_SHARE * eta)


def keep(marginal: Tensor, received: Tensor, eta: float) -> Tensor:
    """Which experts a client uses: received ones with q(e|s) >= eta / E -> [..., E] bool

    Args:
      marginal: [..., E] q(e|s).
      received: [..., E] bool, at least one of them.
      eta: 0 keeps all that was received.
    """
    likely = received & _reaches(marginal, eta)
    among = torch.where(received, marginal, -1.0)
    return torch.where(likely.any(-1, keepdim=True), likely, among == among.amax(-1, keepdim=True))


def kept_part(q: Tensor, keep: Tensor) -> Tensor:
    """A distribution [..., E] over the experts in `keep` only, renormalised -> [..., E]"""
    part = torch.where(keep, q, 0.0)
    return part / part.sum(-1, keepdim=True)


def kept_table(phi: Tensor, keep: Tensor) -> Tensor:
    """q(e|c) over the experts in `keep` [E] only, renormalised row by row -> [R, E]"""
    return masked(phi, keep).softmax(-1)


def _reaches(q: Tensor, eta: float) -> Tensor:
    """q >= eta / E; a q that is equal but for rounding does."""
    slack = 1 - ROUNDING * torch.finfo(q.dtype).eps
    return q >= slack * eta / q.shape[-1]


# -- the server -------------------------------------------------------------------------


def reweighted(q: Tensor, p: Tensor) -> Tensor:
    """p(s|e), proportional to q(e|s) p(s) over the cohort -> [C, E]

    0 throughout for an expert that nobody counts on.

    Args:
      q: [C, E] marginals; 0 where a client did not return the expert.
      p: [C] the clients' shares of the cohort's examples.
    """
    mass = q * p.unsqueeze(-1)
    total = mass.sum(0)
    return mass / torch.where(total > 0, total, 1.0)


def entropy_gradient(phi: Tensor, prior: Tensor) -> Tensor:
    """Gradient, with respect to phi, of the entropy of sum_c p(c) q(.|c) -> [R, E]

    Args:
      phi: [R, E].
      prior: [R] p(c).
    """
    log_q = phi.log_softmax(-1)
    q = log_q.exp()
    log_mean = (prior.log().unsqueeze(-1) + log_q).logsumexp(0)  # [E]
    return -prior.unsqueeze(-1) * q * (log_mean - (q * log_mean).sum(-1, keepdim=True))


def combined(differences: Params, weights: Tensor) -> Params:
    """sum_s p(s|e) difference_s of every expert: leaves [C, E, ...] -> [E, ...]"""
    return tree.map(lambda x: torch.einsum("ce,ce...->e...", weights.to(x.dtype), x), differences)


def expert_step(
    server: ServerAdam, task: Task, experts: Params, returned: Params, weights: Tensor, memory: Tree
) -> tuple[Params, Tree, Params]:
    """(experts, memory, differences [C, E, ...]) after a step along the weighted differences.

    An expert whose weights are all 0 keeps everything. Running statistics take no step of Adam,
    but are averaged.

    Args:
      server: the optimiser.
      task: of the experts.
      experts: [E, ...] as they were sent.
      returned: [C, E, ...].
      weights: [C, E], the clients' of each expert; they sum to 1, or less, or are all 0.
      memory: of `server`, with a count for each expert.
    """
    # Client by client, so that equal models differ by exactly 0, which Adam would magnify.
    differences = tree.map(torch.sub, experts, returned)  # [E, ...] to [C, E, ...]
    mean = combined(differences, weights)
    mean, drift = tree.partition(mean, task.is_statistic)
    old, statistics = tree.partition(experts, task.is_statistic)
    stepped, memory = server.step(old, mean, memory, active=weights.sum(0) > 0)
    stepped = {**stepped, **tree.sub(statistics, drift)}
    return stepped, memory, task.trainable(differences)


def divergence(differences: Params, weights: Tensor) -> Tensor:
    """`gradient_divergence` of each expert: leaves [C, E, ...], weights [C, E] -> [E]"""
    return vmap(gradient_divergence, in_dims=(1, 1))(differences, weights)
