"""The common base of FedMix and its variants: a mixture of whole models with gates on features.

Clients train experts and gate together. The server takes a step of Adam along the weighted mean
difference of each expert.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import NUMBERS, mixture_log_probs
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import TRAINING_COPIES, Curves, Range
from fedlib.methods.parts import gating, tables, variational
from fedlib.methods.parts.divergence import divergence
from fedlib.methods.parts.gating import Outputs, Predictor
from fedlib.methods.parts.server_adam import ServerAdam
from fedlib.methods.parts.variational import Report
from fedlib.tree import Tree


@dataclass(frozen=True, kw_only=True)
class PooledMixture(Curves):
    """Settings, the server's step of the experts, and prediction.

    The state has the server's `experts`, leaves [E, ...], and `divergence` [horizon, E].

    Attributes:
      local: solver of all that a client trains, run once per round; plain SGD in the paper, with
        rate 0.05.
      num_experts: E, the paper's K, at least 1, which is FedAvgAdam. Table 1 has 2, 4 and 10.
      server_lr: learning rate of the server's Adam, at least 0; 1e-3 in the paper, Adam's default.
      gate_epochs: epochs for which a new client trains its gate, at least 1; 10 is ours.
      horizon: rounds of the run whose gradient divergence is recorded, at least 0.
    """

    num_experts: int
    server_lr: float = 1e-3
    gate_epochs: int = 10
    horizon: int = 0

    ranges: ClassVar = {
        **{"num_experts": NUMBERS, "gate_epochs": Range(1)},
        **dict.fromkeys(("server_lr", "horizon"), Range(0)),
    }
    ways: ClassVar = {
        "seen": {"default": "personalise", "new_shard": "anybody", "finetuned": "finetune"},
        "unseen": {"default": "welcome", "new_shard": "anybody"},
    }

    @cached_property
    def server(self) -> ServerAdam:
        """The server's optimiser; experts, table and gate have separate memories."""
        return ServerAdam(lr=self.server_lr)

    def report(self, state: Any, returned: Params, weights: Tensor, part: Cohort) -> Report:
        """Sums of the differences of a part's clients, weighted by `weights` [C, E]."""
        diverge = part.round < self.horizon
        return variational.report(self.task, state.experts, returned, weights, part, diverge)

    def step(self, state: Any, found: Report, memory: Tree, cohort: Cohort) -> tuple[Any, Tree]:
        """(state, memory) after the server's step of the experts; see `variational`."""
        mean, active = variational.mean_difference(found), found.weights.sum > 0
        experts, memory = variational.expert_step(
            self.server, self.task, state.experts, mean, active, memory
        )
        rounds, value = range(self.horizon), lambda: divergence(found.directions.sum)
        after = tables.record(state.divergence, rounds, cohort.round, value)
        return state._replace(experts=experts, divergence=after), memory

    # -- evaluation -------------------------------------------------------------------

    def outputs(self, personal: Predictor, batch: Batch) -> Outputs:
        """Features [B, E, F] and log-probabilities [B, E, L] of the experts."""
        return gating.outputs(self.task, personal.experts, batch)

    def decide(self, personal: Predictor, outputs: Outputs, batch: Batch) -> Tensor:
        """The mixture of the experts' probabilities -> [B, L]"""
        features, log_probs = outputs
        return mixture_log_probs(personal.log_weights(features), log_probs)

    def personal_numbers(self) -> int:
        """Memory of ONE client in a final evaluation, in numbers: its experts in training."""
        return TRAINING_COPIES * self.num_experts * tree.numel(self.task.init(0))

    def diagnostics(self, state: Any) -> dict[str, Tensor]:
        """The gradient divergence [horizon, E], if it was recorded."""
        return {"divergence": state.divergence} if self.horizon else {}
