"""Pooled: one model trained on all clients' training examples in one place.

A reference without federation. A round makes as many passes over the examples of all seen clients
as a client of a federated method makes over its own; with `steps`, as many batches.

Source: a reference of ours, the "centralised" row of many papers.
"""

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.journal import Journal
from fedlib.engine.solvers import Solver
from fedlib.engine.task import Params
from fedlib.federation import Split
from fedlib.methods.one_model import OneModel, State

# Made once, as captured steps (`fedlib.engine.graphs`) are identified by the data that they read.
_made = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class Pooled(OneModel):
    """No federation: one model is trained on all the data. Nothing is sent."""

    look = "Pooled data", "#555555", (6, 1, 15), "dashdot"

    def round(self, state: State, cohort: Cohort) -> State:
        """Train on the examples of all seen clients; each client of the cohort records the loss."""
        trainer = self.trainer(cohort)
        start, local = tree.broadcast(state.params, 1), self.solver(trainer)
        trained, memory = trainer.fit(self.task.loss, start, local=local, memory=state.memory)
        [loss] = trainer.journal.losses
        cohort.journal.add(cohort.host_ids, loss.expand(cohort.size))
        cohort.journal.examples += trainer.journal.examples
        return State(tree.take(trained, 0), memory)

    def solver(self, trainer: Cohort) -> Solver:
        """`local`, without a last batch of one example if the model has batch normalisation."""
        number = trainer.data.federation.train.sizes.sum()
        if self.task.needs_pairs and number % self.local.batch_size == 1:
            return replace(self.local, drop_last=True)
        return self.local

    def trainer(self, cohort: Cohort) -> Cohort:
        """A cohort of the first seen client, which owns the training examples of all."""
        seen = cohort.seen()
        if cohort.data not in _made:
            federation = cohort.data.federation
            owned = [np.empty(0, np.int64)] * federation.num_clients
            everything = [federation.train.of(client) for client in seen.host_ids]
            owned[seen.host_ids[0]] = np.concatenate(everything)
            _made[cohort.data] = cohort.data.with_fields(train=Split.from_lists(owned))
        return replace(seen.some(slice(1)), data=_made[cohort.data], journal=Journal())

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The model, for all clients; nothing is sent."""
        return cohort.held(state.params)
