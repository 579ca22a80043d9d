"""Generalised FedAvg: the server takes a step of Adam along the clients' mean difference.

    client  trains the model w on its shard, returns w_s
    server  w <- w - Adam( sum_s p(s) (w - w_s) ),  p(s) the client's share of the cohort's examples

Source: Reddi et al., "Adaptive Federated Optimization", ICLR 2021, with Adam's default
hyper-parameters, as the baseline "FedAvg" of Reisser et al., "Federated Mixture of Experts", ICLR
2021 submission (arXiv:2107.06724); sections 2 and 4 of fedlib/papers/fedmix/README.md.
Deviation: running statistics of batch normalisation, which the paper's models do not have, are
averaged. "finetuned" is the mean over all clients, in the paper over the clients of one round.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.parts import Total
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import TRAINING_COPIES, Curves, LogUniform, Range
from fedlib.methods.parts import tables
from fedlib.methods.parts.divergence import directions, divergence
from fedlib.methods.parts.server_adam import ServerAdam
from fedlib.tree import Tree

NEW_CLIENT_EPOCHS = 10  # in which a new client fits what is private; ours, as for FedMix's gates


class State(NamedTuple):
    """The server's model, every client's private parameters, and the memory of all optimisers."""

    params: Params  # w, without private parameters
    private: Params  # leaves [num_clients, ...]; {} if there are none
    memory: Memory
    adam: Tree  # memory of the server's Adam
    divergence: Tensor  # [horizon, 1], gradient divergence of each round


@dataclass(frozen=True, kw_only=True)
class FedAvgAdam(Curves):
    """One model for all clients; derived methods keep some of its parameters private.

    Absent clients have no weight, whatever the run's `aggregation` is.

    Attributes:
      local: local solver, run once per round; plain SGD in the paper, with rate 0.05.
      server_lr: learning rate of the server's Adam, at least 0; 1e-3 in the paper, Adam's default.
      horizon: rounds of the run whose gradient divergence is recorded, at least 0.
    """

    server_lr: float = 1e-3
    horizon: int = 0

    look = "FedAvg (server Adam)", "#1A1A1A", (16, 0, 0), "solid"
    ranges: ClassVar = dict.fromkeys(("server_lr", "horizon"), Range(0))
    SPACE: ClassVar = {"server_lr": LogUniform(1e-3, 1e-1)}
    ways: ClassVar = {
        "seen": {"default": "personalise", "new_shard": "personalise", "finetuned": "finetune"},
        "unseen": {"default": "personalise", "new_shard": "personalise"},
        "server": {"default": "personalise"},
    }

    @cached_property
    def server(self) -> ServerAdam:
        """The server's optimiser."""
        return ServerAdam(lr=self.server_lr)

    def is_private(self, name: str) -> bool:
        """Whether this entry of the parameters is private."""
        return False

    def draw(self, seed: int) -> Params:
        """The whole model that all clients start from."""
        return self.task.init(seed)

    def init(self, num_clients: int, seed: int) -> State:
        """A new model, with equal private parts for all clients; empty memories."""
        drawn = self.draw(seed)
        params, private = tree.partition(drawn, self.is_private)
        return State(
            params=params,
            private=tree.repeat(private, num_clients),
            memory=self.local.memory(self.task.trainable(drawn), num_clients),
            adam=self.server.init(self.task.trainable(params)),
            divergence=next(iter(drawn.values())).new_zeros(self.horizon, 1),
        )

    # -- a round ----------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Broadcast, train locally, update the server; private parameters stay at the clients."""
        start, returns = self.personalise(state, cohort), partial(self.report, state)
        (sent, towards, private), memory = self.fit(state, start, cohort, returns)
        after = self.server_update(state, cohort.collect(sent), towards, cohort)
        private = cohort.put(state.private, private)
        return after._replace(private=private, memory=memory)

    def report(self, state: State, part: Cohort, trained: Params) -> tuple[Total, Total, Params]:
        """(sums of differences and statistics, sums of directions, private parameters) of a part"""
        returned, private = tree.partition(trained, self.is_private)
        old, _ = tree.partition(state.params, self.task.is_statistic)
        new, statistics = tree.partition(returned, self.task.is_statistic)
        # Client by client, so equal models differ by exactly 0: Adam would magnify rounding errors.
        differences, towards = tree.sub(part.held(old), new), []
        if part.round < self.horizon:
            alone = tree.map(lambda d: d.unsqueeze(1), differences)
            towards = directions(alone, torch.ones_like(part.num_examples)[:, None])
        return part.total((differences, statistics)), part.total(towards), private

    def server_update(self, state: State, sent: Total, towards: Total, cohort: Cohort) -> State:
        """A step of Adam along the mean of the differences `sent`."""
        difference, statistics = sent.mean()
        old, _ = tree.partition(state.params, self.task.is_statistic)
        params, adam = self.server.step(old, difference, state.adam)
        rounds, found = range(self.horizon), lambda: divergence(towards.sum)
        history = tables.record(state.divergence, rounds, cohort.round, found)
        return state._replace(params={**params, **statistics}, adam=adam, divergence=history)

    # -- evaluation -------------------------------------------------------------------

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The server's parameters, and each client's private ones."""
        return {**cohort.broadcast(state.params), **tree.take(state.private, cohort.ids)}

    def finetune(self, state: State, cohort: Cohort) -> Params:
        """Each client's model after local training in a further round, before its upload."""
        return self.fit(state, self.personalise(state, cohort), cohort)[0]

    def fit(
        self, state: State, start: Params, cohort: Cohort, returns: Callable | None = None
    ) -> tuple[Tree, Memory]:
        """(the result of a local round, see `returns` of `Cohort.fit`; the solvers' memory)"""
        about = {"local": self.local, "memory": state.memory, "returns": returns}
        return cohort.fit(self.task.loss, start, **about)

    def welcome(self, state: State, cohort: Cohort) -> Params:
        """For new clients with labels: the server's model; they fit the private parameters to it.

        Training changes running statistics, so each client has its own for the whole model.
        """
        frozen, statistics = tree.partition(state.params, self.task.is_statistic)
        start = {**cohort.held(statistics), **tree.take(state.private, cohort.ids)}

        def loss(own: Params, batch: Batch) -> Tensor:
            return self.task.loss({**frozen, **own}, batch)

        local = replace(self.local, epochs=NEW_CLIENT_EPOCHS, steps=None)
        own, _ = cohort.fit(loss, start, local=local, stream="welcome")
        return {**cohort.held(frozen), **own}

    def personal_numbers(self) -> int:
        """Memory of ONE client in a final evaluation, in numbers: its model in training."""
        return TRAINING_COPIES * tree.numel(self.task.init(0))

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """The gradient divergence of each round [horizon, 1], if it was recorded."""
        return {"divergence": state.divergence} if self.horizon else {}
