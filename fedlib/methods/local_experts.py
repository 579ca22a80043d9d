"""Local experts: every client trains its own model with early stopping.

    client  trains from the common start; keeps its model of lowest loss

Nothing is communicated. Local experts are the baseline "Local" of Adaptive Expert Models and
members of its mixtures. They do not depend on the clusters' models, so all runs of that method with
the same federation and seed have the same local experts, bit for bit.

A round is the whole training of the next few clients; an interrupted run continues with the
clients that are left. "default" is the model that a client keeps, or the common start if it has not
trained; "local" is the same, only for clients that train.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
FL-IJCAI 2022 (arXiv:2206.07832), f_l of equation 4; section 3.1 of
fedlib/papers/adaptive_experts/README.md.
Official code: EricssonResearch/fl-moe, models/ClientUpdate.py (`train_finetune`).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib import streams, tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Solver
from fedlib.engine.task import Params
from fedlib.federation import CLIENTS, Federation
from fedlib.methods.base import Method, Range
from fedlib.methods.parts import early_stopping
from fedlib.methods.parts.own_models import place_in_turn
from fedlib.tree import Rows

MODELS = ("best", "last")  # that a client can keep, see `early_stopping.fit`


class State(NamedTuple):
    """The clients' models, and the number of epochs that each has trained."""

    models: dict[str, Rows]  # by name, of all clients; the start for clients that have not trained
    epochs: Tensor  # [num_clients] int64, 0 before training; in host memory


@dataclass(frozen=True, kw_only=True)
class LocalExperts(Method):
    """One model per client, each trained once.

    Attributes:
      local: local solver. Its momenta and epoch counts last until the client stops; its own number
        of epochs or steps is ignored. AdamW in the paper (Table 1).
      lr_decay: whether the learning rate follows `early_stopping.SlowDecay` (official code).
      max_epochs, check_every, patience, stop_split: see `early_stopping.EarlyStopping`; the
        defaults are the official code's, except that of the split.
      keep: models that clients keep, of `MODELS`; must contain "best".
      personal_clients: number of clients of a group that train, the first ones, at least 1; None is
        all.
      groups: groups whose clients train.
      at_once: clients that train in a round, at least 1. Results do not depend on it.
    """

    lr_decay: bool = False
    max_epochs: int = 200
    check_every: int = 5
    patience: int = 10
    stop_split: str = "val"
    keep: tuple[str, ...] = ("best",)
    personal_clients: int | None = None
    groups: tuple[str, ...] = CLIENTS
    at_once: int = 10

    look = "Local experts", "#9C8F6B", (12, 0, 0), "dotted"
    ranges: ClassVar = dict.fromkeys(("personal_clients", "at_once"), Range(1))
    final_protocols: ClassVar = {name: {"local": "personalise"} for name in CLIENTS}

    def __post_init__(self):
        """Raises ValueError for invalid settings."""
        Method.__post_init__(self)
        for name, known in (("keep", MODELS), ("groups", CLIENTS)):
            if not {*getattr(self, name)} <= {*known}:
                raise ValueError(f"{name} must be of {known}, got {getattr(self, name)}")
        if "best" not in self.keep:
            raise ValueError(f"keep must have 'best', which clients predict with, got {self.keep}")
        _ = self.stopping  # is checked when it is made

    @cached_property
    def solver(self) -> Solver:
        """The local solver with its schedule."""
        return early_stopping.decaying(self.local, self.lr_decay)

    @cached_property
    def stopping(self) -> early_stopping.EarlyStopping:
        """When a client stops."""
        return early_stopping.EarlyStopping(
            max_epochs=self.max_epochs,
            check_every=self.check_every,
            patience=self.patience,
            split=self.stop_split,
        )

    def start(self, seed: int) -> Params:
        """The model that all clients start from, with a random stream of its own."""
        return self.task.init(int(streams.keys(1, seed, "local")[0]))

    def init(self, num_clients: int, seed: int) -> State:
        """All clients have the common start."""
        models = place_in_turn([self.start(seed)], num_clients)
        return State(dict.fromkeys(self.keep, models), torch.zeros(num_clients).long())

    def round(self, state: State, cohort: Cohort) -> State:
        """The next clients that have not trained do so, whatever the round's cohort is."""
        if not len(clients := self.waiting(state, cohort.data.federation)[: self.at_once]):
            return state
        trained = self.train(cohort.of(clients))
        models = {
            name: tree.put(state.models[name], clients, Rows(tree.unstack(own)))
            for name, own in trained.models.items()
        }
        return State(models, state.epochs.index_copy(0, torch.from_numpy(clients), trained.epochs))

    def train(self, cohort: Cohort) -> early_stopping.FitResult:
        """Train the clients of `cohort`; the result does not depend on round or method."""
        return early_stopping.fit(
            replace(cohort, task=self.task).in_round(0),
            self.task.losses,
            cohort.held(self.start(cohort.seed)),
            local=self.solver,
            stopping=self.stopping,
            stream="local",
            keep=self.keep,
        )

    # -- clients that have trained ------------------------------------------------------

    def finalists(self, federation: Federation, group: str) -> np.ndarray:
        """The first `personal_clients` of the group."""
        return federation.ids(group)[: self.personal_clients]

    def waiting(self, state: State, federation: Federation) -> np.ndarray:
        """The untrained clients of the first group that has any -> [C or fewer]"""
        for group in self.groups:
            clients = self.finalists(federation, group)
            if len(clients := clients[(state.epochs[clients] == 0).numpy()]):
                return clients
        return np.empty(0, np.int64)

    # -- evaluation -----------------------------------------------------------------------

    def personalise(self, state: State, cohort: Cohort) -> Rows:
        """Each client's model at its best check."""
        return tree.take(state.models["best"], cohort.host_ids)

    def briefly(self) -> "LocalExperts":
        """This method, with training until the second check."""
        return replace(self, max_epochs=1 + self.check_every)

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Epochs that each client has trained [num_clients]."""
        return {"epochs": state.epochs}
