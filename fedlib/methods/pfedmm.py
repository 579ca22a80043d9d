"""pFedMM: a mixture of E expert heads on one shared body, fitted like FedEM.

    E-step  q[i, e] proportional to pi[e] * p_e(y_i | x_i), the body run once per example
    M-step  pi[e] = mean_i q[i, e];  body and heads together minimise sum_e q[i, e] * loss_e
    server  averages the body (batch normalisation included, unless clients keep it) and each head

Source: "Mixture of Experts for Personalized Federated Learning under Mixture Data Distributions in
Edge Computing Networks", Algorithm 1.
Official code: Archipes/pFedMM, learners/learners_moe.py, client.py, utils/utils.py.
Deviation: the switches `prior`, `concentration` and `private_norms` are ours; their defaults are
the official code. Body and first head are the run seed's model, and each further head has its own
random draw for each run seed. Private batch normalisation
is that of FedBN: Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization", ICLR 2021.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import (
    draw_experts,
    each_expert,
    padded,
    responsibilities,
    uniform_weights,
)
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params, log_probs
from fedlib.methods.fedem import FedEM
from fedlib.methods.parts.settings import OneOf, Range

PRIORS = ("carried", "uniform")
Model = dict[str, Params]  # {"body": [...], "heads": [E, ...]}


class State(NamedTuple):
    """The shared model, every client's private parts, and the memory of the solvers."""

    experts: Model  # shared by all clients
    pi: Tensor  # [num_clients, E], private
    norms: Params  # the body's batch normalisation, [num_clients, ...], private; {} if shared
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class PFedMM(FedEM):
    """FedEM whose experts differ only in their last layers.

    Attributes:
      local: solver of the M-step; its learning rate is that of the heads (0.03 in the scripts).
      num_experts: E, the number of heads, at least 1, which is FedAvg; the scripts have 3.
      relu_logits: apply a ReLU to the heads' outputs, as the official EMNIST expert does.
      body_lr_scale: factor of the body's learning rate, at least 0. None is E, as in the official
        code, which adds the learning rates of the E heads.
      prior: prior of the E-step: "carried", the client's last weights ("prior information" in the
        paper), or "uniform".
      concentration: a >= 1 of a Dirichlet prior on the weights; 1 is no prior.
      private_norms: whether clients keep the body's batch normalisation (scale, shift and
        statistics) and send none of it; a client that never took part has the initial one. False is
        the official code. Without batch normalisation it has no effect.
    """

    relu_logits: bool = False
    body_lr_scale: float | None = None
    prior: str = "carried"
    concentration: float = 1.0
    private_norms: bool = False

    look = "pFedMM", "#D55E00", "*", "solid", 2.1
    choices: ClassVar = {"prior": PRIORS}
    ranges: ClassVar = FedEM.ranges | {"concentration": Range(1), "body_lr_scale": Range(0)}
    SPACE: ClassVar = FedEM.SPACE | {"body_lr_scale": OneOf((None, 1.0))}

    def init(self, num_clients: int, seed: int) -> State:
        """New heads, with the body of the first model; uniform pi."""
        heads = draw_experts(self.task, self.num_experts, seed, lambda x: self.task.split(x)[1])
        body, _ = self.task.split(self.task.init(seed))
        model = {"body": body, "heads": heads}
        memory = self.local.memory(self.task.trainable(model), num_clients)
        like = next(iter(heads.values()))
        pi = uniform_weights(num_clients, self.num_experts, like)
        experts, norms = self.apart(model)
        return State(experts, pi, tree.repeat(norms, num_clients), memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """E-step and M-step on every client, then the average of body and heads."""
        q, pi = self.e_step(state, state.pi[cohort.ids], cohort)
        body_lr_scale = self.num_experts if self.body_lr_scale is None else self.body_lr_scale

        def returns(part: Cohort, trained: Model) -> tuple:
            experts, norms = self.apart(trained)
            return part.total(experts), norms

        (sent, norms), memory = cohort.fit(
            self.m_step,
            self.received(state, cohort),
            q,
            local=self.local,
            memory=state.memory,
            lr_scale={"body": body_lr_scale},
            returns=returns,
        )
        private = cohort.put((state.pi, state.norms), (pi, norms))
        return State(cohort.average(sent, state.experts), *private, memory)

    def e_step(self, state: State, prior: Tensor, cohort: Cohort) -> tuple[Tensor, Tensor]:
        """Responsibilities q [C, N, E] under `prior` [C, E], and the new weights pi [C, E]."""
        if self.prior == "uniform":
            prior = torch.full_like(prior, 1 / self.num_experts)
        held = together(cohort.held(state.experts), self.own_norms(state, cohort))
        losses = padded(cohort.score(self.losses, held), cohort.data.federation.train.sizes)
        q = responsibilities(prior, losses)
        pseudo = self.concentration - 1  # pseudo-examples of each expert
        count = cohort.num_examples.to(q.dtype)[:, None]
        pi = (count * cohort.example_mean(q) + pseudo) / (count + self.num_experts * pseudo)
        return q, pi

    def log_probs(self, experts: Model, batch: Batch) -> Tensor:
        """Log-probabilities under each head; the body runs once per example -> [B, E, L]"""
        features = self.task.features(experts["body"], batch)
        logits = each_expert(
            lambda head: self.task.head_logits(head, features, batch), experts["heads"]
        )
        return log_probs(logits.relu() if self.relu_logits else logits)

    # -- private batch normalisation ---------------------------------------------------

    def received(self, state: State, cohort: Cohort) -> Model:
        """The broadcast model, with each client's private batch normalisation -> [C, ...]"""
        return together(cohort.broadcast(state.experts), self.own_norms(state, cohort))

    def apart(self, model: Model) -> tuple[Model, Params]:
        """(shared part, private part) of `model`; the inverse of `together`."""
        private = self.task.norms if self.private_norms else frozenset()
        body, norms = tree.partition(model["body"], private.__contains__)
        return {**model, "body": body}, norms

    def own_norms(self, state: State, cohort: Cohort) -> Params:
        """The private batch normalisation of each client -> [C, ...]

        Unseen clients have none and get the mean over seen clients, weighted by their numbers of
        training examples. It is computed for the evaluation and not counted as traffic.
        """
        own = tree.take(state.norms, cohort.ids)
        federation = cohort.data.federation
        # In host memory, as reading numbers from the device would wait for it.
        seen = federation.ids("seen")
        unseen = np.flatnonzero(np.isin(cohort.host_ids, seen, invert=True))
        if not len(unseen):
            return own
        sizes = federation.train.sizes[seen].astype(np.float64)
        sizes, seen, unseen = map(cohort.tensor, (sizes, seen, unseen))
        mean = tree.mean(tree.take(state.norms, seen), sizes)
        return tree.put(own, unseen, tree.broadcast(mean, len(unseen)))


def together(experts: Model, norms: Params) -> Model:
    """The whole model, from the shared part `experts` and the private part `norms`."""
    return {**experts, "body": {**experts["body"], **norms}}
