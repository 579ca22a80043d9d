"""A plain mixture of gated experts, trained on its likelihood: the case that collapses.

    maximise  mean_i log sum_e p(e|x_i) p_e(y_i|x_i)

Nothing separates the experts, and the gate soon gives all weight to one of them. The recorded mean
gate weights by label show this: see `table_rounds`.

The paper trains it on all data in one place: a federation of one client. Ours: a round is
`local.steps` mini-batches of a new shuffle, so an epoch has several rounds, after each of which the
gate can be recorded. With several clients, experts and gate are averaged as in FedAvg.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724),
Figure 14 (b); section 7.4 of fedlib/papers/fedmix/README.md.
Deviation: the paper does not specify the gate. Here it is FedMix's gate on the unweighted mean of
the experts' features, and starts uniform.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import NUMBERS, draw_experts, mixture_log_probs
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params, nll
from fedlib.errors import DataError
from fedlib.methods.base import Method
from fedlib.methods.parts import gating, tables
from fedlib.methods.parts.gating import Gate

Model = dict[str, Params | Gate]  # {"experts": leaves [E, ...], "gate": see parts.gating}


class State(NamedTuple):
    """The mixture, the memory of the solvers, and the recorded gate weights."""

    model: Model
    memory: Memory
    tables: Tensor  # [S, L, E] mean gate weights by label after each of table_rounds; 0 before


@dataclass(frozen=True, kw_only=True)
class PlainMixture(Method):
    """A mixture of whole models and a gate, the same for all clients.

    Attributes:
      local: solver of experts and gate.
      num_experts: E, at least 1, which is FedAvg; 4 in Figure 14.
      table_rounds: rounds after which gate weights are recorded, ascending; 0 is before the first
        round. They are means over the validation examples of the round's clients.
    """

    num_experts: int
    table_rounds: tuple[int, ...] = ()

    look = "Plain mixture", "#AA7744", (3, 0, 180), "dashdot"
    ranges: ClassVar = {"num_experts": NUMBERS}

    def __post_init__(self):
        """Raises ValueError for invalid settings."""
        Method.__post_init__(self)
        tables.check_rounds(self.table_rounds)

    def init(self, num_clients: int, seed: int) -> State:
        """New experts; a uniform gate."""
        experts = draw_experts(self.task, self.num_experts, seed)
        like = next(iter(experts.values()))
        gate = gating.uniform(self.task.num_features, self.num_experts, like)
        model = {"experts": experts, "gate": gate}
        memory = self.local.memory(self.task.trainable(model), num_clients)
        uniform = like.new_full((self.task.num_labels, self.num_experts), 1 / self.num_experts)
        recorded = like.new_zeros(len(self.table_rounds), *uniform.shape)
        recorded = tables.record(recorded, self.table_rounds, 0, lambda: uniform)
        return State(model, memory, recorded)

    # -- a round ----------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Train, average, and record the gate after one of `table_rounds`."""
        start = cohort.broadcast(state.model)
        sent, memory = cohort.fit(
            self.loss, start, local=self.local, memory=state.memory, returns=Cohort.total
        )
        model = cohort.average(sent, state.model)
        found = partial(self.table, model, cohort)
        recorded = tables.record(state.tables, self.table_rounds, cohort.round + 1, found)
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

    # -- recorded gate weights ----------------------------------------------------------

    def table(self, model: Model, cohort: Cohort) -> Tensor:
        """Mean gate weights by label, over validation examples of the round's clients -> [L, E]

        Raises:
          DataError: if no client of the round has validation examples.
        """
        if not cohort.data.federation.val.sizes[cohort.host_ids].any():
            raise DataError(
                "no client of the round has validation examples, on which the gate is looked at; "
                "use a partition that gives some"
            )
        found = cohort.score(self.by_label, cohort.held(model), split="val").sum((0, 1))
        weights, count = found[:, :-1], found[:, -1:]
        return weights / count.clamp(min=1)

    def by_label(self, model: Model, batch: Batch) -> Tensor:
        """Gate weights and a 1, in the row of each example's label -> [B, L, E + 1]"""
        features, log_probs = gating.outputs(self.task, model["experts"], batch)
        weights = self.log_gate(model["gate"], features).exp()
        entry = torch.cat([weights, torch.ones_like(weights[:, :1])], dim=1)
        label = one_hot(batch.y.long(), log_probs.shape[-1]).to(entry.dtype)
        return label.unsqueeze(-1) * entry.unsqueeze(1)

    def personalise(self, state: State, cohort: Cohort) -> Model:
        """The mixture, for seen and unseen clients."""
        return cohort.broadcast(state.model)

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Mean gate weights [S, L, E] and their rounds [S], for the rounds reached."""
        return tables.diagnostics(self.table_rounds, state.tables)
