"""Ensemble: every client trains its own model; the server averages the models' predictions.

    client   trains M_j alone; sends it
    server   p(y|x) = mean_j p_j(y|x)    over the clients that have taken part

Fed-MoE averages the weights of the clients' models; the ensemble averages their predictions, so it
must evaluate every model.

Source: a baseline of ours for Jiang et al., "Heterogeneous Federated Learning with Scalable Server
Mixture-of-Experts", IJCAI 2025 (doi 10.24963/ijcai.2025/610).
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import each_expert, mixture_log_probs
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Method
from fedlib.methods.parts.own_models import place_in_turn
from fedlib.tree import Rows


class State(NamedTuple):
    """One model per client, and the memory of their solvers."""

    models: Rows
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class Ensemble(Method):
    """Clients train alone; the mean of their predictions is used for all.

    Attributes:
      local: local solver, run once per round.
    """

    look = "Ensemble of clients", "#8F7A3E", (5, 1, 36), "dotted"
    protocols: ClassVar = {**Method.protocols, "server": {"default": "personalise"}}
    final_protocols: ClassVar = {**Method.final_protocols, "seen": {"own": "own_models"}}

    def init(self, num_clients: int, seed: int) -> State:
        """The same new model for all clients."""
        model = self.task.init(seed)
        memory = self.local.memory(self.task.trainable(model), num_clients)
        return State(place_in_turn([model], num_clients), memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Each client continues to train its own model and sends it to the server."""
        models = tree.take(state.models, cohort.host_ids)
        trained, memory = cohort.fit(self.task.loss, models, local=self.local, memory=state.memory)
        return State(cohort.put(state.models, cohort.collect(trained)), memory)

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The models of clients that have trained [E, ...], for all; at first the new model."""
        members = state.memory.epochs.nonzero().flatten().tolist() or [0]
        models = tree.stack([state.models[client] for client in members])
        return cohort.broadcast(tree.map(lambda x: x.to(self.task.device), models))

    def own_models(self, state: State, cohort: Cohort) -> Rows:
        """Each client's own model, as an ensemble of one."""
        models = tree.take(state.models, cohort.host_ids)
        return Rows(tree.map(lambda x: x[None], model) for model in models)

    def server_parameters(self, state: State) -> int:
        """Parameters of all clients' models, as the server may hold all of them."""
        return sum(tree.numel(self.task.trainable(model)) for model in state.models)

    def predict(self, personal: Params, batch: Batch) -> Tensor:
        """The mean of the members' probabilities -> [B, L]"""
        log_probs = each_expert(lambda member: self.task.log_probs(member, batch), personal)
        share = log_probs.new_full(log_probs.shape[1:2], -math.log(log_probs.shape[1]))
        return mixture_log_probs(share, log_probs)
