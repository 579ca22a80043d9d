"""q-FFL, solved by q-FedAvg: clients with a higher loss have more weight.

    client  F = loss of the received model w on the train split;  v = w trained locally
            dw = L (w - v);  Delta = F^q dw;  h = q F^(q-1) ||dw||^2 + L F^q
    server  w <- w - sum Delta / sum h

L = 1 / lr is constant during the run; the learning rate's schedule affects only v. Shards of all
sizes have the same weight.

Source: Li et al., "Fair Resource Allocation in Federated Learning", ICLR 2020, Algorithm 2.
Official code: litian96/fair_flearn, flearn/trainers/qffedavg.py.
Deviation: cohorts are drawn uniformly without replacement, not by shard size. Absent clients have
no weight, whatever the run's `aggregation` is. Running statistics are averaged as in FedAvg.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.func import vmap

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Params
from fedlib.methods.base import LogUniform, Range
from fedlib.methods.one_model import OneModel, State

TINY = 1e-10  # added to F, so that its powers exist for a loss of 0


@dataclass(frozen=True, kw_only=True)
class QFFL(OneModel):
    """One model for all clients, with more weight on clients with a high loss.

    Attributes:
      local: local solver, run once per round; L is 1 / its `lr`, so `lr` must be above 0.
      q: exponent of the loss, at least 0: a larger q is fairer. 0 is FedAvg with equal weights for
        all clients; 1 is the default of pFedMM's code.
    """

    q: float = 1.0

    look = "q-FFL", "#332288", "h", "dashed"
    ranges: ClassVar = {"q": Range(0)}
    SPACE: ClassVar = {"q": LogUniform(1e-2, 10)}

    def __post_init__(self):
        """Raises ValueError unless the learning rate is above 0."""
        OneModel.__post_init__(self)
        if not self.local.lr > 0:
            raise ValueError(f"lr must be above 0, as L is 1 / lr, got {self.local.lr}")

    def round(self, state: State, cohort: Cohort) -> State:
        """Every client scores and trains the received model; the server updates it."""
        received = cohort.broadcast(state.params)
        losses = cohort.example_mean(cohort.score(self.task.losses, received))
        # All models at once, as the messages are weighted by losses, not by examples.
        trained, memory = cohort.fit(
            self.task.loss, received, local=self.local, memory=state.memory
        )
        w, statistics = tree.partition(state.params, self.task.is_statistic)
        v, statistics_of_clients = tree.partition(trained, self.task.is_statistic)
        sent = vmap(lambda v, loss: self.report(w, v, loss))(v, losses)
        w = self.update(w, *cohort.collect(sent))
        return State(tree.merge(w, cohort.average(statistics_of_clients, statistics)), memory)

    def report(self, w: Params, v: Params, loss: Tensor) -> tuple[Params, Tensor]:
        """ONE client's message (Delta, h []), from its loss [] at w."""
        q, lipschitz, loss = self.q, 1 / self.local.lr, loss + TINY
        dw = tree.map(lambda w, v: lipschitz * (w - v), w, v)
        h = q * loss ** (q - 1) * tree.sqnorm(dw) + lipschitz * loss**q
        return tree.map(lambda x: loss**q * x, dw), h

    def update(self, w: Params, delta: Params, h: Tensor) -> Params:
        """The server's new model, from Delta [C, ...] and h [C] -> [...]"""
        return tree.map(lambda w, delta: w - delta.sum(0) / h.sum(), w, delta)
