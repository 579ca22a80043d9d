"""pFedMe as FedEM and pFedMM run it: personal models, held near their average.

    client  continues from its own model x and minimises f(x) + mu / 2 ||x - w||^2
    server  w <- the average of the personal models

Source: Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, which
describes a different algorithm: see `pfedme_moreau`. This one is closer to the formulation of
Hanzely and Richtarik (see `l2sgd`); FedEM's and pFedMM's code runs it as "pFedMe".
Official code: omarfoq/FedEM, aggregator.py (PersonalizedAggregator), utils/optim.py (ProxSGD).
Deviation: none. ProxSGD has no momentum, so a reproduction needs a solver with `momentum` 0.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import LogUniform, Method, Range


class State(NamedTuple):
    """The server's reference, every client's model, and the memory of the solvers."""

    reference: Params  # w, the average of the models
    models: Params  # x [num_clients, ...], private; with running statistics
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class PFedMe(Method):
    """One model per client, each pulled towards the average of all.

    Absent clients count with the models that they have, whatever the run's `aggregation` is.

    Attributes:
      local: local solver, run once per round.
      mu: weight of ||x - w||^2 / 2, at least 0; 0 is Local. pFedMM's scripts have 1.
    """

    mu: float

    look = "pFedMe", "#009E73", "^", "dashed"
    ranges: ClassVar = {"mu": Range(0)}
    SPACE: ClassVar = {"mu": LogUniform(1e-2, 30)}
    protocols: ClassVar = {"seen": {"default": "personalise"}, "unseen": {"default": "reference"}}

    def init(self, num_clients: int, seed: int) -> State:
        """The same new model for the server and all clients."""
        params = self.task.init(seed)
        memory = self.local.memory(self.task.trainable(params), num_clients)
        return State(params, tree.repeat(params, num_clients), memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Each client trains its own model; the reference moves by the average change."""
        w = self.task.trainable(cohort.broadcast(state.reference))
        own = tree.take(state.models, cohort.ids)
        trained, memory = cohort.fit(self.loss, own, w, local=self.local, memory=state.memory)
        # By shares of all clients' examples, so that an absent client counts with the model it has.
        total = cohort.collect(cohort.total(tree.sub(trained, own)))
        reference = tree.add(state.reference, total.over(cohort.population_examples))
        return State(reference, cohort.put(state.models, trained), memory)

    def loss(self, params: Params, reference: Params, batch: Batch) -> Tensor:
        """The client's loss plus the proximal term -> []"""
        away = tree.sub(self.task.trainable(params), reference)
        return self.task.loss(params, batch) + self.mu / 2 * tree.sqnorm(away)

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """Each client's own model."""
        return tree.take(state.models, cohort.ids)

    def reference(self, state: State, cohort: Cohort) -> Params:
        """The average of the personal models, for clients without one."""
        return cohort.broadcast(state.reference)
