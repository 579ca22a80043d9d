"""A plain mixture of gated experts, trained on its likelihood: what FedMix does not do, and why.

    maximise  mean_i log sum_e p(e|x_i) p_e(y_i|x_i)

Nothing keeps the experts apart, and the gate soon trusts one of them with everything. The mean
weight that the gate gives to each expert, label by label, shows it: see `table_rounds`.

The paper trains this on all data in one place: a federation of one client. A round is `local.steps`
mini-batches of a fresh shuffle, so many rounds that they add up to an epoch, between which one can
look at the gate [R]. With more clients experts and gate are averaged as in FedAvg.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724),
Figure 14 (b); specification section 7.4.
Deviation: the paper does not say what the gate sees. Here it is that of FedMix, fed with the plain
mean of the experts' features, as there is nothing to weigh them with [R]; it begins uniform [R].
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import EXPERT_SEEDS, draw_experts, mixture_log_probs
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Batch, Params, nll
from fedlib.errors import DataError
from fedlib.methods.base import Method, Range
from fedlib.methods.parts import gating, tables
from fedlib.methods.parts.gating import Gate

Model = dict[
    str, Params | Gate
]  # {"experts": leaves [E, ...], "gate": see fedlib.methods.parts.gating}
SPLITS = ("train", "val")


class State(NamedTuple):
    """The mixture, what the solvers remember, and what the gate did on the way."""

    model: Model
    memory: Memory
    tables: Tensor  # [S, L, E] mean gate weights by label after each of table_rounds; 0 before


@dataclass(frozen=True, kw_only=True)
class PlainMixture(Method):
    """A mixture of whole models and a gate, the same for everybody.

    Attributes:
      local: solver of experts and gate.
      num_experts: E. 1 is FedAvg.
      expert_seeds: how experts are drawn, "independent" or "official"; see
        `fedlib.engine.experts.expert_seed`.
      table_rounds: after which the gate is looked at, ascending; 0 is before the first.
      table_split: on whose examples: "train" or "val", of the clients in that round.
    """

    local: Solver
    num_experts: int
    expert_seeds: str = "independent"
    table_rounds: tuple[int, ...] = ()
    table_split: str = "val"

    choices: ClassVar = {"expert_seeds": EXPERT_SEEDS, "table_split": SPLITS}
    ranges: ClassVar = {"num_experts": Range(1)}

    def __post_init__(self):
        """Raises ValueError for settings that mean nothing."""
        Method.__post_init__(self)
        object.__setattr__(self, "table_rounds", tables.checked_rounds(self.table_rounds))

    def init(self, num_clients: int, seed: int) -> State:
        """Experts as `expert_seeds` says; a gate that trusts all alike."""
        experts = draw_experts(self.task, self.num_experts, seed, self.expert_seeds)
        like = next(iter(experts.values()))
        gate = gating.uniform(gating.features_of(self.task), self.num_experts, like)
        model = {"experts": experts, "gate": gate}
        memory = self.local.memory(self.task.trainable(model), num_clients)
        _, head = self.task.split(experts)
        num_labels = max(2, list(head.values())[-1].shape[1])  # one logit is of two labels
        recorded = like.new_zeros(len(self.table_rounds), num_labels, self.num_experts)
        recorded[[r == 0 for r in self.table_rounds]] = 1 / self.num_experts
        return State(model, memory, recorded)

    # -- a round ----------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Train, average, look at the gate if it is time to."""
        sent, memory = cohort.fit(
            self.loss,
            cohort.broadcast(state.model),
            local=self.local,
            memory=state.memory,
            returns=Cohort.total,
        )
        model = cohort.average(sent, state.model)
        found = partial(self.table, model, cohort)
        recorded = tables.tabulated(state.tables, self.table_rounds, cohort.round + 1, found)
        return State(model, memory, recorded)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The mixture's negative log-likelihood -> []"""
        return batch.mean(nll(self.predict(model, batch), batch.y, self.task.class_weights))

    def predict(self, personal: Model, batch: Batch) -> Tensor:
        """The mixture of the experts' probabilities -> [B, L]"""
        features, log_probs = gating.outputs(self.task, personal["experts"], batch)
        return mixture_log_probs(self.log_gate(personal["gate"], features), log_probs)

    def log_gate(self, gate: Gate, features: Tensor) -> Tensor:
        """log p(e|x) from the experts' features [B, E, F] -> [B, E]"""
        return gating.log_weights(gate, features.mean(1))

    # -- what the gate does -------------------------------------------------------------

    def table(self, model: Model, cohort: Cohort) -> Tensor:
        """Mean gate weights by label, over the examples of the clients of the round -> [L, E]"""
        split = self.table_split
        if not cohort.data.federation.split(split).sizes[cohort.host_ids].any():
            other = next(name for name in SPLITS if name != split)
            raise DataError(
                f"no client of the round has {split} examples, on which the gate is looked at; use "
                f"a partition that gives some, or table_split {other!r}"
            )
        found = cohort.score(self.by_label, cohort.held(model), split=split).sum((0, 1))
        weights, count = found[:, :-1], found[:, -1:]
        return weights / count.clamp(min=1)

    def by_label(self, model: Model, batch: Batch) -> Tensor:
        """The gate's weights and a 1, in the row of each example's label -> [B, L, E + 1]"""
        features, log_probs = gating.outputs(self.task, model["experts"], batch)
        weights = self.log_gate(model["gate"], features).exp()
        entry = torch.cat([weights, torch.ones_like(weights[:, :1])], dim=1)
        label = one_hot(batch.y.long(), log_probs.shape[-1]).to(entry.dtype)
        return label.unsqueeze(-1) * entry.unsqueeze(1)

    def personalise(self, state: State, cohort: Cohort) -> Model:
        """The mixture, for clients seen and unseen."""
        return cohort.broadcast(state.model)

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Mean gate weights [S, L, E], and the rounds after which they were found [S].

        Rounds that never came are left out.
        """
        return tables.diagnostics(state.tables, self.table_rounds)
