"""Generalised FedAvg: the server takes a step of Adam along the mean of the clients' differences.

    client  trains the model w on its shard, returns w_s
    server  w <- w - Adam( sum_s p(s) (w - w_s) ),  p(s) the client's share of the cohort's examples

Source: Reddi et al., "Adaptive Federated Optimization", ICLR 2021, with Adam's own
hyper-parameters, as the baseline "FedAvg" of Reisser et al., "Federated Mixture of Experts", ICLR
2021 submission (arXiv:2107.06724); specification sections 2 and 4.
Deviation: running statistics of batch normalisation, which the paper's models have not, are
averaged. "finetuned" is the mean over all clients, the paper's over those of one round.
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
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Curves, Range
from fedlib.methods.parts.divergence import directions, divergence, is_recorded, recorded
from fedlib.methods.parts.server_adam import ServerAdam
from fedlib.methods.parts.settings import LogUniform
from fedlib.tree import Tree

TRAINING_COPIES = 3  # of a model in training: itself, its gradient and a momentum


class State(NamedTuple):
    """The server's model, what clients keep of theirs, and what all optimisers remember."""

    params: Params  # w, without what is private
    private: Params  # leaves [num_clients, ...]; {} if nothing is
    memory: Memory
    adam: Tree  # of the server
    divergence: Tensor  # [horizon, 1], of the rounds' differences


@dataclass(frozen=True, kw_only=True)
class FedAvgAdam(Curves):
    """One model for everybody; methods derived from it keep some of its parameters private.

    Absent clients count for nothing, whatever the run's `aggregation` is.

    Attributes:
      local: local solver, run once per round; plain SGD in the paper.
      server_lr: of the server's Adam.
      horizon: rounds of the run; the divergence of so many rounds is recorded. 0 records none.
    """

    local: Solver
    server_lr: float = 1e-3
    horizon: int = 0

    private_lr_scale: ClassVar[float] = 1.0  # of the clients' rate; a field where clients keep some
    ranges: ClassVar = dict.fromkeys(("horizon", "private_lr_scale"), Range(0))
    SPACE: ClassVar = {"server_lr": LogUniform(1e-3, 1e-1)}
    ways: ClassVar = {
        "seen": {"default": "personalise", "new_shard": "personalise", "finetuned": "finetune"},
        "unseen": {"default": "personalise", "new_shard": "personalise"},
        "server": {"default": "personalise"},
    }

    def __post_init__(self):
        """Raises ValueError for settings that mean nothing."""
        Curves.__post_init__(self)
        _ = self.server  # it checks itself

    @cached_property
    def server(self) -> ServerAdam:
        """The server's optimiser."""
        return ServerAdam(lr=self.server_lr)

    @cached_property
    def lr_scale(self) -> dict[str, float]:
        """Factors of the clients' rate, by entry of the parameters."""
        return {n: self.private_lr_scale for n in self.task.init(0) if self.is_private(n)}

    def is_private(self, name: str) -> bool:
        """Whether clients keep this entry of the parameters for themselves."""
        return False

    def draw(self, seed: int) -> Params:
        """The whole model that everybody starts from."""
        return self.task.init(seed)

    def init(self, num_clients: int, seed: int) -> State:
        """The drawn model, private parts alike; nothing remembered."""
        drawn = self.draw(seed)
        params, private = tree.partition(drawn, self.is_private)
        like = next(iter(drawn.values()))
        return State(
            params,
            tree.repeat(private, num_clients),
            self.local.memory(self.task.trainable(drawn), num_clients),
            self.server.init(self.task.trainable(params)),
            like.new_zeros(self.horizon, 1),
        )

    # -- a round ----------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Broadcast, train locally, step on the server; what is private stays where it is."""
        start, returns = self.personalise(state, cohort), partial(self.report, state)
        (sent, towards, private), memory = self.fit(state, start, cohort, returns)
        after = self.server_update(state, cohort.collect(sent), towards, cohort)
        private = cohort.put(state.private, private)
        return after._replace(private=private, memory=memory)

    def report(self, state: State, part: Cohort, trained: Params) -> tuple[Total, Total, Params]:
        """What a part returns, added up: differences and statistics, directions; what is private"""
        returned, private = tree.partition(trained, self.is_private)
        old, _ = tree.partition(state.params, self.task.is_statistic)
        new, statistics = tree.partition(returned, self.task.is_statistic)
        # Client by client, so that equal models differ by exactly 0, which Adam would magnify.
        differences, towards = tree.sub(part.held(old), new), []
        if is_recorded(state.divergence, part.round):
            alone = tree.map(lambda d: d.unsqueeze(1), differences)
            towards = directions(alone, torch.ones_like(part.num_examples)[:, None])
        return part.total((differences, statistics)), part.total(towards), private

    def server_update(self, state: State, sent: Total, towards: Total, cohort: Cohort) -> State:
        """Adam on the mean of the differences that were `sent`."""
        difference, statistics = sent.mean()
        old, _ = tree.partition(state.params, self.task.is_statistic)
        params, adam = self.server.step(old, difference, state.adam)
        found = recorded(state.divergence, cohort.round, lambda: divergence(towards.sum))
        return state._replace(params={**params, **statistics}, adam=adam, divergence=found)

    # -- evaluation -------------------------------------------------------------------

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The server's parameters, and those that each client has for itself."""
        return {**cohort.broadcast(state.params), **tree.take(state.private, cohort.ids)}

    def finetune(self, state: State, cohort: Cohort) -> Params:
        """What each client would have before its upload, if the next round were with it."""
        return self.fit(state, self.personalise(state, cohort), cohort)[0]

    def fit(
        self, state: State, start: Params, cohort: Cohort, returns: Callable | None = None
    ) -> tuple[Tree, Memory]:
        """What is kept of a local round, see `Cohort.fit`, and what the solvers remember."""
        about = {"local": self.local, "memory": state.memory, "lr_scale": self.lr_scale}
        return cohort.fit(self.task.loss, start, **about, returns=returns)

    def fit_private(self, state: State, cohort: Cohort, epochs: int) -> Params:
        """The server's parameters, frozen, and private ones that each client fits to them.

        Running statistics are renewed by training, so each client has its own of the whole model.
        """
        frozen, statistics = tree.partition(state.params, self.task.is_statistic)
        start = {**cohort.held(statistics), **tree.take(state.private, cohort.ids)}

        def loss(own: Params, batch: Batch) -> Tensor:
            return self.task.loss({**frozen, **own}, batch)

        local = replace(self.local, epochs=epochs, steps=None)
        own, _ = cohort.fit(loss, start, local=local, stream="welcome", lr_scale=self.lr_scale)
        return {**cohort.held(frozen), **own}

    def personal_numbers(self) -> int:
        """Numbers that a client of a final evaluation needs at once: its model in training."""
        return TRAINING_COPIES * tree.numel(self.task.init(0))

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """The divergence of each round [horizon, 1], if it was recorded."""
        return {"divergence": state.divergence} if self.horizon else {}
