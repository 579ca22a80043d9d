"""pFedMM: a mixture of E expert heads on one shared body, fitted like FedEM.

    E-step  q[i, e] proportional to pi[e] * p_e(y_i | x_i), the body run once per example
    M-step  pi[e] = mean_i q[i, e];  body and heads together minimise sum_e q[i, e] * loss_e
    server  averages the body (batch normalisation included) and each head

Source: "Mixture of Experts for Personalized Federated Learning under Mixture Data Distributions in
Edge Computing Networks", of which we had the abstract and the code; section 2.13 of
fedlib/papers/pfedmm/README.md.
Official code: Archipes/pFedMM, learners/learners_moe.py, client.py, utils/utils.py.
Deviation: the switches `prior` and `concentration` are ours; their defaults are the official code.
Body and first head are the run seed's model, and each further head has its own random draw for each
run seed.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import draw_experts, each_expert
from fedlib.engine.task import Batch, Params, log_probs
from fedlib.methods.fedem import FedEM, State
from fedlib.methods.parts.settings import OneOf, Range

PRIORS = ("carried", "uniform")
Model = dict[str, Params]  # the experts of the state: {"body": [...], "heads": [E, ...]}


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
        abstract), or "uniform".
      concentration: a >= 1 of a Dirichlet prior on the weights; 1 is no prior.
    """

    relu_logits: bool = False
    body_lr_scale: float | None = None
    prior: str = "carried"
    concentration: float = 1.0

    look = "pFedMM", "#D55E00", "*", "solid", 2.1
    choices: ClassVar = {"prior": PRIORS}
    ranges: ClassVar = FedEM.ranges | {"concentration": Range(1), "body_lr_scale": Range(0)}
    SPACE: ClassVar = FedEM.SPACE | {"body_lr_scale": OneOf((None, 1.0))}

    def draw(self, seed: int) -> Model:
        """New heads, with the body of the first model."""
        heads = draw_experts(self.task, self.num_experts, seed, lambda x: self.task.split(x)[1])
        body, _ = self.task.split(self.task.init(seed))
        return {"body": body, "heads": heads}

    @property
    def lr_scale(self) -> dict[str, float]:
        """The body's factor."""
        return {"body": self.num_experts if self.body_lr_scale is None else self.body_lr_scale}

    def e_step(self, state: State, prior: Tensor, cohort: Cohort) -> tuple[Tensor, Tensor]:
        """Responsibilities q [C, N, E] under `prior` [C, E], and the new weights pi [C, E]."""
        if self.prior == "uniform":
            prior = torch.full_like(prior, 1 / self.num_experts)
        q, mean = FedEM.e_step(self, state, prior, cohort)
        pseudo = self.concentration - 1  # pseudo-examples of each expert
        count = cohort.num_examples.to(q.dtype)[:, None]
        return q, (count * mean + pseudo) / (count + self.num_experts * pseudo)

    def log_probs(self, experts: Model, batch: Batch) -> Tensor:
        """Log-probabilities under each head; the body runs once per example -> [B, E, L]"""
        features, heads = self.task.features(experts["body"], batch), experts["heads"]
        logits = each_expert(lambda head: self.task.head_logits(head, features, batch), heads)
        return log_probs(logits.relu() if self.relu_logits else logits)
