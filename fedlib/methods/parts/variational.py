"""The variational table of FedMix, pruning with it, and the server's update of the experts.

The table phi [R, E] has a row for each value c of the condition of q (a label, or other side
information of an example): q(e|c) = softmax_e phi[c]. A client's marginal is the mean of its
examples' rows, q(e|s) = sum_c p(c|s) q(e|c).

Source: "Federated Mixture of Experts", the lower bound and Algorithms 1 and 2; sections 1, 2 and
2.1 of fedlib/papers/fedmix/README.md.
Deviation: if all experts that a client received fall below the threshold, it keeps the most
probable one, or several that are equally probable. In the paper eta <= 1 ensures that some expert
is above the threshold, but not that the client received it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine import simplex
from fedlib.engine.cohort import Cohort
from fedlib.engine.parts import Total
from fedlib.engine.task import Params, Task
from fedlib.methods.parts.divergence import directions
from fedlib.methods.parts.gating import mask
from fedlib.methods.parts.server_adam import ServerAdam
from fedlib.tree import Tree

SENT_SHARE = 0.9  # the server sends experts above 0.9 of the clients' threshold (Algorithm 2)
TURNS = 200  # enough for ten digits where the table tells labels apart
ROUNDING = 16  # tolerance of marginals, in units in the last place


def marginal(shares: Tensor, phi: Tensor) -> Tensor:
    """q(e|s) = sum_c p(c|s) q(e|c) -> [..., E]

    Args:
      shares: [..., R] p(c|s).
      phi: [R, E], or [..., R, E] if clients have their own tables.
    """
    return (shares.unsqueeze(-1) * phi.softmax(-1)).sum(-2)


def read_shares(marginal: Tensor, phi: Tensor) -> Tensor:
    """p(c|s), read from q(e|s) by least squares on the simplex -> [..., R]

    Among several answers it is one near uniform shares: by turns the nearest point with these
    marginals, and the nearest distribution.

    Args:
      marginal: [..., E] q(e|s).
      phi: [R, E].
    """
    table = phi.softmax(-1).double()
    inverse, flat = torch.linalg.pinv(table), marginal.double().reshape(-1, marginal.shape[-1])
    shares = table.new_full((len(flat), len(table)), 1 / len(table))
    for _ in range(TURNS):
        shares = torch.vmap(simplex.project)(shares + (flat - shares @ table) @ inverse)
    return shares.reshape(*marginal.shape[:-1], -1).to(marginal.dtype)


def bound(q: Tensor, log_likelihood: Tensor, log_gate: Tensor, kept: Tensor | None = None):
    """sum_e q_e (log p_e(y|x) + log p(e|x)) of every example, to be maximised -> [B]

    Args:
      q: [B, E] rows of the table for the examples' labels or side information.
      log_likelihood: [B, E] log p_e(y|x).
      log_gate: [B, E] log p(e|x).
      kept: [B, E] q over kept experts, which replaces q in the likelihood term (Algorithm 2).
    """
    return ((q if kept is None else kept) * log_likelihood + q * log_gate).sum(-1)


def entropy(logits: Tensor) -> Tensor:
    """Entropy of softmax(logits [..., E]), in nats -> [...]"""
    log_q = logits.log_softmax(-1)
    return -(log_q.exp() * log_q).sum(-1)


# -- pruning ----------------------------------------------------------------------------


def experts_to_send(stored: Tensor, eta: float) -> Tensor:
    """Which experts the server sends to clients with `stored` marginals [C, E] -> [C, E] bool"""
    return _reaches(stored, SENT_SHARE * eta)


def keep(marginal: Tensor, received: Tensor, eta: float) -> Tensor:
    """Which experts a client uses: received ones with q(e|s) >= eta / E -> [..., E] bool

    Args:
      marginal: [..., E] q(e|s).
      received: [..., E] bool, with at least one True.
      eta: in [0, 1]; 0 keeps all received experts.
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
    return mask(phi, keep).softmax(-1)


def _reaches(q: Tensor, eta: float) -> Tensor:
    """q >= eta / E, up to rounding -> bool, same shape"""
    return q >= (1 - ROUNDING * torch.finfo(q.dtype).eps) * eta / q.shape[-1]


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
    """The clients' returned experts, as sums over clients by examples and weights."""

    differences: Total  # sent minus returned, leaves [E, ...]
    weights: Total  # [E]
    directions: Total  # for the gradient divergence


def report(
    task: Task, experts: Params, returned: Params, weights: Tensor, part: Cohort, diverge: bool
) -> Report:
    """The report of some clients.

    Args:
      task: of the experts.
      experts: [E, ...] that were sent.
      returned: [C, E, ...].
      weights: [C, E] factors of the clients' numbers of examples.
      part: the clients.
      diverge: whether to compute the sums for the gradient divergence.
    """
    # Client by client, so equal models differ by exactly 0: Adam would magnify rounding errors.
    differences = tree.map(torch.sub, experts, returned)  # [E, ...] to [C, E, ...]
    towards = directions(task.trainable(differences), weights) if diverge else []
    weighted = tree.map(lambda d: d * tree.along(weights.to(d.dtype), d), differences)
    return Report(part.total(weighted), part.total(weights), part.total(towards))


def mean_difference(found: Report) -> Params:
    """sum_s p(s|e) difference_s of every expert; 0 for an expert without weight -> [E, ...]

    Args:
      found: report of the cohort, with weights q(e|s). p(s|e) is proportional to q(e|s) p(s).
    """
    mass = found.weights.sum
    by = torch.where(mass > 0, mass, 1)
    return tree.map(lambda d: d / tree.along(by.to(d.dtype), d), found.differences.sum)


def expert_step(
    server: ServerAdam, task: Task, experts: Params, mean: Params, active: Tensor, memory: Tree
) -> tuple[Params, Tree]:
    """(experts, memory) after a step along the mean differences.

    Inactive experts do not change. Running statistics are averaged, without Adam.

    Args:
      server: the optimiser.
      task: of the experts.
      experts: [E, ...] that were sent.
      mean: [E, ...] of the differences.
      active: [E] bool, the experts that step.
      memory: of `server`, with a step count for each expert.
    """
    mean, drift = tree.partition(mean, task.is_statistic)
    old, statistics = tree.partition(experts, task.is_statistic)
    stepped, memory = server.step(old, mean, memory, active=active)
    return {**stepped, **tree.sub(statistics, drift)}, memory
