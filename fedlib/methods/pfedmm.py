"""pFedMM: a mixture of E expert heads on one shared body, fitted like FedEM.

    E-step  q[i, e] proportional to pi[e] * p_e(y_i | x_i), the body run once per example
    M-step  pi[e] = mean_i q[i, e];  body and heads together minimise sum_e q[i, e] * loss_e
    server  averages the body (batch normalisation included) and each head

Source: "Mixture of Experts for Personalized Federated Learning under Mixture Data Distributions in
Edge Computing Networks", Algorithm 1.
Official code: Archipes/pFedMM, learners/learners_moe.py, client.py, utils/utils.py.
Deviation: `prior` and `concentration` are switches of ours; their defaults are the official code.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedlib import tree
from fedlib.cohort import Cohort
from fedlib.methods.fedem import FedEM, State
from fedlib.mixture import each_expert, responsibilities, uniform_weights
from fedlib.task import Batch, Params, log_probs

PRIORS = ("carried", "uniform")


@dataclass(frozen=True, kw_only=True)
class PFedMM(FedEM):
    """FedEM whose experts share everything but their last layers.

    State as FedEM, with `experts` being {"body": [...], "heads": [E, ...]}.

    Attributes:
      local: solver of the M-step; its learning rate is the heads'.
      num_experts: E, the number of heads.
      relu_logits: apply a ReLU to the heads' outputs, as the official EMNIST expert does.
      body_lr_scale: factor of the body's learning rate; None is E, as in the official code (which
        adds up the E heads' learning rates).
      prior: prior of the E-step: "carried", the client's last weights ("prior information" in the
        paper), or "uniform".
      concentration: a >= 1 of a Dirichlet prior on the weights; 1 is none.
    """

    relu_logits: bool = False
    body_lr_scale: float | None = None
    prior: str = "carried"
    concentration: float = 1.0

    def __post_init__(self):
        """Raises ValueError for settings that mean nothing."""
        FedEM.__post_init__(self)
        if self.prior not in PRIORS:
            raise ValueError(f"prior must be one of {PRIORS}, got {self.prior!r}")
        if self.concentration < 1:
            raise ValueError(f"concentration must be at least 1, got {self.concentration}")
        if self.body_lr_scale is not None and not self.body_lr_scale >= 0:
            raise ValueError(f"body_lr_scale must be at least 0, got {self.body_lr_scale}")

    def init(self, num_clients: int, seed: int) -> State:
        """Head e drawn from seed + e, the body from seed + E; uniform weights."""
        heads = [self.task.split(self.task.init(seed + e))[1] for e in range(self.num_experts)]
        body, _ = self.task.split(self.task.init(seed + self.num_experts))
        model = {"body": body, "heads": tree.stack(heads)}
        memory = self.local.memory(self.task.trainable(model), num_clients)
        like = next(iter(model["heads"].values()))
        return State(model, uniform_weights(num_clients, self.num_experts, like), memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """E-step and M-step on every client, then the average of body and heads."""
        q, pi = self.e_step(state, state.pi[cohort.ids], cohort)
        body_lr_scale = self.num_experts if self.body_lr_scale is None else self.body_lr_scale
        trained, memory = cohort.fit(
            self.m_step,
            cohort.broadcast(state.experts),
            q,
            local=self.local,
            memory=state.memory,
            lr_scale={"body": body_lr_scale},
        )
        model = cohort.average(trained, state.experts)
        return State(model, tree.put(state.pi, cohort.ids, pi), memory)

    def e_step(self, state: State, prior: Tensor, cohort: Cohort) -> tuple[Tensor, Tensor]:
        """Responsibilities q [C, N, E] under `prior` [C, E], and the weights [C, E] they give."""
        if self.prior == "uniform":
            prior = torch.full_like(prior, 1 / self.num_experts)
        losses = cohort.score(self.losses, cohort.held(state.experts))
        q = responsibilities(prior, losses)
        pseudo = self.concentration - 1  # examples that every expert is given in advance
        count = cohort.num_examples.to(q.dtype)[:, None]
        pi = (count * cohort.example_mean(q) + pseudo) / (count + self.num_experts * pseudo)
        return q, pi

    def log_probs(self, experts: dict[str, Params], batch: Batch) -> Tensor:
        """The body runs once per example, every head on its features -> [B, E, L]"""
        features = self.task.features(experts["body"], batch)
        logits = each_expert(
            lambda head: self.task.head_logits(head, features, batch), experts["heads"]
        )
        return log_probs(logits.relu() if self.relu_logits else logits)
