"""The gated mixture in pFedMM's tables: shared experts, a private expert and a private gate.

    client  minimises sum_e mean_i g_e(x_i) * loss_e(x_i, y_i): the gate g weights the losses of the
            E experts for each example; gate and experts learn together
    server  averages the first E - 1 experts; the last expert and the gate stay with the client

Source: a baseline of "Mixture of Experts for Personalized Federated Learning under Mixture Data
Distributions in Edge Computing Networks", whose code and tables call it "pFedMoE". It is not the
pFedMoE of Yi et al. (2024), `pfedmoe` here, which mixes representations of a small shared and a
large private extractor.
Official code: Archipes/pFedMM, section 2.12 of fedlib/papers/pfedmm/README.md.
Deviation: for a batch of one example the gate skips batch normalisation in training only; the
official code also skips it in predictions. Private modules are averaged for unseen clients only, at
evaluations. The official code averages them in every round and sends none back, which has no other
effect and is not counted as traffic. In a decentralised run they stay private; the official code
mixes them too, so there nothing is private.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import (
    NUMBERS,
    draw_experts,
    each_expert,
    expert_losses,
    expert_seed,
    mixture_log_probs,
)
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, JointTask, Params, Task
from fedlib.methods.base import Method, OneOf, Range
from fedlib.models.layers.gate import Gate

Model = dict[str, Params]  # {"experts": leaves [E, ...], "gate": leaves [...]}


class State(NamedTuple):
    """The shared experts, and every client's private expert and gate."""

    experts: Params  # [E - 1, ...]
    models: Model  # {"expert": ..., "gate": ...}, leaves [num_clients, ...], private
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class GatedExperts(Method):
    """A mixture of whole models, weighted by a gate.

    Attributes:
      local: solver of experts and gate.
      num_experts: E, at least 1; the last expert is private, so 1 is Local. pFedMM's scripts have
        2.
      gate_features: numbers in an input, which is the gate's input, at least 1.
    """

    num_experts: int
    gate_features: int

    look = "MoE (pFedMM's)", "#CC79A7", "p", "dashdot"
    ranges: ClassVar = {"num_experts": NUMBERS, "gate_features": Range(1)}
    SPACE: ClassVar = {"num_experts": OneOf((2, 3, 4))}
    protocols: ClassVar = {"seen": {"default": "personalise"}, "unseen": {"default": "welcome"}}
    shared: ClassVar = ("experts",)

    @cached_property
    def gate(self) -> Task:
        """The gate as a second model of every client, with the experts as its classes."""
        return self.task.for_module(partial(Gate, self.gate_features, self.num_experts))

    @cached_property
    def joint_task(self) -> JointTask:
        """The task that trains experts and gate together."""
        return self.task.extend(JointTask, others=(self.gate,))

    def init(self, num_clients: int, seed: int) -> State:
        """New experts, and a gate with the seed of expert E; the same for all clients."""
        experts = draw_experts(self.task, self.num_experts, seed)
        gate = self.gate.init(expert_seed(seed, self.num_experts))
        model = {"experts": experts, "gate": gate}
        memory = self.local.memory(self.joint_task.trainable(model), num_clients)
        own = {"expert": tree.take(experts, -1), "gate": gate}
        return State(tree.take(experts, slice(-1)), tree.repeat(own, num_clients), memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """Every client trains its experts and its gate; the server averages the shared experts."""

        def returns(part: Cohort, trained: Model) -> tuple:
            shared, last = split_last(trained["experts"])
            return part.total(shared), {"expert": last, "gate": trained["gate"]}

        cohort = replace(cohort, task=self.joint_task)
        start = self.personalise(state, cohort)
        (sent, own), memory = cohort.fit(
            self.loss, start, local=self.local, memory=state.memory, returns=returns
        )
        return State(cohort.average(sent, state.experts), cohort.put(state.models, own), memory)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The experts' losses, weighted by the gate; not the loss of the mixture -> []"""
        losses = expert_losses(self.log_probs(model, batch), batch.y, self.task.class_weights)
        return batch.mean((self.weights(model, batch) * losses).sum(-1))

    def weights(self, model: Model, batch: Batch) -> Tensor:
        """The gate's weights of the experts -> [B, E]"""
        return self.gate.logits(model["gate"], batch).softmax(-1)

    def log_probs(self, model: Model, batch: Batch) -> Tensor:
        """Log-probabilities under each expert -> [B, E, L]"""
        return each_expert(lambda expert: self.task.log_probs(expert, batch), model["experts"])

    def personalise(self, state: State, cohort: Cohort) -> Model:
        """The server's experts, and each client's private expert and gate."""
        return self._assemble(state, tree.take(state.models, cohort.ids), cohort)

    def welcome(self, state: State, cohort: Cohort) -> Model:
        """The server's experts, and the average of the seen clients' private experts and gates."""
        training = cohort.seen()
        average = tree.mean(tree.take(state.models, training.ids), training.num_examples)
        return self._assemble(state, tree.broadcast(average, cohort.size), cohort)

    def predict(self, personal: Model, batch: Batch) -> Tensor:
        """The mixture of the experts' probabilities -> [B, L]"""
        log_weights = self.weights(personal, batch).log()
        return mixture_log_probs(log_weights, self.log_probs(personal, batch))

    def _assemble(self, state: State, own: Model, cohort: Cohort) -> Model:
        """The shared experts, which are broadcast, with the private modules `own` [C, ...]."""
        shared = cohort.broadcast(state.experts)
        return {"experts": append(shared, own["expert"]), "gate": own["gate"]}


def append(experts: Params, expert: Params) -> Params:
    """`experts` [C, E - 1, ...], then `expert` [C, ...] -> [C, E, ...]"""
    return tree.map(lambda xs, x: torch.cat([xs, x.unsqueeze(1)], dim=1), experts, expert)


def split_last(experts: Params) -> tuple[Params, Params]:
    """The inverse of `append`: [C, E, ...] -> [C, E - 1, ...] and [C, ...]"""
    return tree.map(lambda xs: xs[:, :-1], experts), tree.map(lambda xs: xs[:, -1], experts)
