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

from typing import NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.parts import Total
from fedlib.engine.task import Params, Task
from fedlib.methods.parts.divergence import directions
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


class Report(NamedTuple):
    """What clients return of their experts, added up over them by their examples and weights."""

    differences: Total  # sent minus returned, leaves [E, ...]
    weights: Total  # [E]
    directions: Total  # for the divergence


def report(
    task: Task, experts: Params, returned: Params, weights: Tensor, part: Cohort, diverge: bool
) -> Report:
    """The report of some clients.

    Args:
      task: of the experts.
      experts: [E, ...] as they were sent.
      returned: [C, E, ...].
      weights: [C, E], beside the clients' examples.
      part: the clients.
      diverge: whether their divergence is to be found.
    """
    # Client by client, so that equal models differ by exactly 0, which Adam would magnify.
    differences = tree.map(torch.sub, experts, returned)  # [E, ...] to [C, E, ...]
    towards = directions(task.trainable(differences), weights) if diverge else []
    weighted = tree.map(lambda d: d * _along(weights, d), differences)
    return Report(part.total(weighted), part.total(weights), part.total(towards))


def mean_difference(found: Report, reweight: bool) -> Params:
    """sum_s p(s|e) difference_s of every expert -> [E, ...]; 0 for one that nobody counts on

    Args:
      found: of the cohort. With its weights q(e|s), p(s|e) is proportional to q(e|s) p(s).
      reweight: whether p(s|e) sums to 1 for each expert; else p(s) takes its place.
    """
    mass = found.weights.sum
    by = torch.where(mass > 0, mass, 1) if reweight else mass.new_full((), found.weights.examples)
    return tree.map(lambda d: d / _along(by, d), found.differences.sum)


def expert_step(
    server: ServerAdam, task: Task, experts: Params, mean: Params, active: Tensor, memory: Tree
) -> tuple[Params, Tree]:
    """(experts, memory) after a step along the mean differences.

    An expert that is not active keeps everything. Running statistics take no step of Adam, but are
    averaged.

    Args:
      server: the optimiser.
      task: of the experts.
      experts: [E, ...] as they were sent.
      mean: [E, ...] of the differences.
      active: [E] bool.
      memory: of `server`, with a count for each expert.
    """
    mean, drift = tree.partition(mean, task.is_statistic)
    old, statistics = tree.partition(experts, task.is_statistic)
    stepped, memory = server.step(old, mean, memory, active=active)
    return {**stepped, **tree.sub(statistics, drift)}, memory


def _along(weights: Tensor, x: Tensor) -> Tensor:
    """`weights` of the first dimensions of `x`, shaped to be multiplied with it."""
    return weights.to(x.dtype).reshape(*weights.shape, *[1] * (x.dim() - weights.dim()))
