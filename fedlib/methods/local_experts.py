"""Local experts: every client trains a model of its own until it stops to improve.

    client  starts where all do, and keeps its model of lowest loss

Nothing is communicated. They are a member of the mixtures of Adaptive Expert Models, and its
baseline "Local". No cluster's model enters them, so all runs of that method on one federation with
one seed have the same ones, bit for bit, and may take them from a run of this method
(`fedlib.spec.Run.settled_by`).

A round is all the training of the next few clients: a run that is interrupted goes on with those
who are left. "default" is the model that a client keeps, or the common start if it has not trained;
"local" is the same for those clients alone who train.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
FL-IJCAI 2022 (arXiv:2206.07832), f_l of equation 4; specification section 3.1.
Official code: EricssonResearch/fl-moe, models/ClientUpdate.py (`train_finetune`).
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib import streams, tree
from fedlib.engine.batches import draw_batches
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Solver
from fedlib.engine.task import Params
from fedlib.federation import CLIENTS, Federation
from fedlib.methods.base import Method, Range
from fedlib.methods.parts import early_stopping
from fedlib.methods.parts.own_models import drawn_in_turn
from fedlib.tree import Rows

MODELS = ("best", "last")  # what a client can keep, see `early_stopping.fit`


class State(NamedTuple):
    """What the clients keep, and which of them have trained."""

    models: dict[str, Rows]  # by name, of all clients; the start of those who have not trained
    epochs: Tensor  # [num_clients] int64, that each has trained, 0 before; in host memory


@dataclass(frozen=True, kw_only=True)
class LocalExperts(Method):
    """As many models as clients, each trained once.

    Attributes:
      local: local solver. Its momenta and epochs live until the client stops; its own number of
        epochs is not used.
      lr_decay: whether the learning rate falls as `early_stopping.SlowDecay` says.
      max_epochs, check_every, patience, stop_split: see `early_stopping.EarlyStopping`.
      keep: which models clients keep, of `MODELS`; "best" is one of them.
      personal_clients: how many clients of a group train, the first ones; None is all of them.
      groups: whose clients train.
      at_once: clients that train in a round. No result depends on it.
    """

    local: Solver
    lr_decay: bool = False
    max_epochs: int = 200
    check_every: int = 5
    patience: int = 10
    stop_split: str = "test"
    keep: tuple[str, ...] = ("best",)
    personal_clients: int | None = None
    groups: tuple[str, ...] = field(default=CLIENTS, compare=False)
    at_once: int = field(default=10, compare=False)

    ranges: ClassVar = dict.fromkeys(("personal_clients", "at_once"), Range(1))
    final_protocols: ClassVar = {name: {"local": "personalise"} for name in CLIENTS}

    def __post_init__(self):
        """Raises ValueError for settings that mean nothing."""
        Method.__post_init__(self)
        for name, known in (("keep", MODELS), ("groups", CLIENTS)):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            if not {*getattr(self, name)} <= {*known}:
                raise ValueError(f"{name} must be of {known}, got {getattr(self, name)}")
        if "best" not in self.keep:
            raise ValueError(f"keep must have 'best', which clients predict with, got {self.keep}")
        _ = self.stopping  # it checks itself

    @cached_property
    def solver(self) -> Solver:
        """The local solver with its schedule."""
        if not self.lr_decay:
            return self.local
        return replace(self.local, schedule=early_stopping.SlowDecay())

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
        """The model that all clients start from; no other module of a run is drawn like it."""
        return self.task.init(int(streams.keys(1, seed, "local")[0]))

    def init(self, num_clients: int, seed: int) -> State:
        """Everybody has the start."""
        models = drawn_in_turn([self.start(seed)], num_clients)
        return State(dict.fromkeys(self.keep, models), torch.zeros(num_clients).long())

    def round(self, state: State, cohort: Cohort) -> State:
        """The next few of those who have not trained do so, whoever the round's clients are."""
        clients = self.waiting(state, cohort.data.federation)[: self.at_once]
        if not len(clients):
            return state
        where = {"ids": cohort.tensor(clients), "known_ids": clients}
        trained = self.train(replace(cohort, **where))
        models = {
            name: tree.put(state.models[name], clients, Rows(tree.unstack(own)))
            for name, own in trained.models.items()
        }
        return State(models, state.epochs.index_copy(0, torch.from_numpy(clients), trained.epochs))

    def train(self, cohort: Cohort) -> early_stopping.Fitted:
        """The clients of `cohort` train, in the same way in whichever round and method that is."""
        return early_stopping.fit(
            replace(cohort, task=self.task).in_round(0),
            self.task.losses,
            cohort.held(self.start(cohort.seed)),
            local=self.solver,
            stopping=self.stopping,
            stream="local",
            keep=self.keep,
        )

    # -- who has trained ----------------------------------------------------------------

    def finalists(self, federation: Federation, group: str) -> np.ndarray:
        """The first `personal_clients` of the group."""
        return federation.ids(group)[: self.personal_clients]

    def waiting(self, state: State, federation: Federation) -> np.ndarray:
        """Those of the first group with any who have yet to train -> [C or fewer]"""
        for group in self.groups:
            clients = self.finalists(federation, group)
            clients = clients[(state.epochs[clients] == 0).numpy()]
            if len(clients):
                return clients
        return np.empty(0, np.int64)

    def trained(self, state: State, cohort: Cohort) -> dict[str, Params] | None:
        """The models of these clients by name, leaves [C, ...]; None unless all have trained."""
        if not state.epochs[cohort.host_ids].all():
            return None
        models = {name: tree.take(rows, cohort.host_ids) for name, rows in state.models.items()}
        return {name: tree.map(cohort.tensor, tree.stack(own)) for name, own in models.items()}

    def examples(self, state: State, cohort: Cohort) -> int:
        """On how many examples these clients have trained, counting repeats."""
        sizes = cohort.data.federation.train.sizes[cohort.host_ids].tolist()
        epoch = replace(self.local, epochs=1)
        per_epoch = [sum(step.size for step in draw_batches(n, epoch, 0).steps) for n in sizes]
        return int(state.epochs[cohort.host_ids] @ torch.tensor(per_epoch))

    # -- evaluation -----------------------------------------------------------------------

    def personalise(self, state: State, cohort: Cohort) -> Rows:
        """Each client's own model, at its best."""
        return tree.take(state.models["best"], cohort.host_ids)

    def briefly(self) -> "LocalExperts":
        """Clients that train as long as it takes to be checked twice."""
        return replace(self, max_epochs=1 + self.check_every)

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Epochs that each client has trained [num_clients], 0 for those who have not."""
        return {"epochs": state.epochs}
