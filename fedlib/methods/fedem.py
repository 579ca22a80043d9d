"""FedEM: federated expectation-maximisation for a mixture of shared experts.

    E-step  q[i, e] proportional to pi[e] * p_e(y_i | x_i)
    M-step  pi[e] = mean_i q[i, e];  expert e minimises mean_i q[i, e] * loss_e
    server  averages each expert

A client's data is a mixture of E distributions common to all clients. The mixture weights pi are
the client's own and never leave it.

Source: Marfoq et al., "Federated Multi-Task Learning under a Mixture of Distributions", NeurIPS
2021, Algorithm 1.
Official code: omarfoq/FedEM, client.py (MixtureClient), aggregator.py.
Deviation: the experts of a client train on the same batches in one pass; the official code makes a
pass per expert and shuffles for each. Each expert's update is the same function of its batches.
Each expert and run seed has its own random draw, see `fedlib.engine.experts.expert_seed`.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import (
    NUMBERS,
    draw_experts,
    each_expert,
    expert_losses,
    mixture_log_probs,
    pad_scores,
    responsibilities,
    uniform_weights,
)
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Method, OneOf


class State(NamedTuple):
    """The shared experts, every client's weights, and the memory of the solvers."""

    experts: Params  # [E, ...], shared by all clients
    pi: Tensor  # [num_clients, E], private
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class FedEM(Method):
    """A mixture of whole models.

    Attributes:
      local: solver of the M-step.
      num_experts: E, the paper's M, "learners" in its code; at least 1, which is FedAvg. The
        scripts of FedEM and pFedMM have 3.
    """

    num_experts: int

    look = "FedEM", "#0072B2", "X", "solid"
    ranges: ClassVar = {"num_experts": NUMBERS}
    SPACE: ClassVar = {"num_experts": OneOf((2, 3, 4))}
    shared: ClassVar = ("experts",)
    protocols: ClassVar = {
        "seen": {"default": "personalise"},
        "unseen": {"default": "welcome", "carry": "personalise"},
    }
    final_protocols: ClassVar = {"seen": {"one_step": "refresh"}, "unseen": {}}
    alike: ClassVar = frozenset({"default", "carry"})  # the experts; only weights differ

    def init(self, num_clients: int, seed: int) -> State:
        """New experts; uniform weights."""
        experts = self.draw(seed)
        memory = self.local.memory(self.task.trainable(experts), num_clients)
        like = tree.leaves(experts)[0]
        return State(experts, uniform_weights(num_clients, self.num_experts, like), memory)

    def draw(self, seed: int) -> Params:
        """The experts before the first round."""
        return draw_experts(self.task, self.num_experts, seed)

    def round(self, state: State, cohort: Cohort) -> State:
        """E-step and M-step on every client, then the average of each expert."""
        q, pi = self.e_step(state, state.pi[cohort.ids], cohort)
        sent, memory = cohort.fit(
            self.m_step,
            cohort.broadcast(state.experts),
            q,
            local=self.local,
            memory=state.memory,
            lr_scale=self.lr_scale,
            returns=Cohort.total,
        )
        return State(cohort.average(sent, state.experts), cohort.put(state.pi, pi), memory)

    @property
    def lr_scale(self) -> dict[str, float]:
        """Factors of the learning rate, by the parts of the experts that have other rates."""
        return {}

    def e_step(self, state: State, prior: Tensor, cohort: Cohort) -> tuple[Tensor, Tensor]:
        """Responsibilities q [C, N, E] under `prior` [C, E], and their mean, the new pi [C, E]."""
        losses = cohort.score(self.losses, cohort.held(state.experts))
        losses = pad_scores(losses, cohort.data.federation.train.sizes)
        q = responsibilities(prior, losses)
        return q, cohort.example_mean(q)

    def m_step(self, experts: Params, q: Tensor, batch: Batch) -> Tensor:
        """One client's objective: every expert on every example, weighted by q [N, E] -> []"""
        return batch.mean((q[batch.index] * self.losses(experts, batch)).sum(-1))

    def losses(self, experts: Params, batch: Batch) -> Tensor:
        """Negative log-likelihood of each example under each expert -> [B, E]"""
        return expert_losses(self.log_probs(experts, batch), batch.y, self.task.class_weights)

    def log_probs(self, experts: Params, batch: Batch) -> Tensor:
        """Log-probabilities under each expert -> [B, E, L]"""
        return each_expert(lambda expert: self.task.log_probs(expert, batch), experts)

    def personalise(self, state: State, cohort: Cohort) -> tuple[Params, Tensor]:
        """The experts, and each client's weights."""
        return cohort.broadcast(state.experts), state.pi[cohort.ids]

    def outputs(self, personal: tuple[Params, Tensor], batch: Batch) -> Tensor:
        """Log-probabilities under each expert -> [B, E, L]"""
        experts, _ = personal
        return self.log_probs(experts, batch)

    def decide(self, personal: tuple[Params, Tensor], outputs: Tensor, batch: Batch) -> Tensor:
        """The client's mixture of the experts' probabilities -> [B, L]"""
        _, pi = personal
        return mixture_log_probs(pi.log(), outputs)

    # -- new and absent clients -------------------------------------------------------

    def welcome(self, state: State, cohort: Cohort) -> tuple[Params, Tensor]:
        """The experts, and weights from exactly one E-step with a uniform prior."""
        uniform = uniform_weights(cohort.size, self.num_experts, state.pi)
        return cohort.broadcast(state.experts), self.e_step(state, uniform, cohort)[1]

    def refresh(self, state: State, cohort: Cohort) -> tuple[Params, Tensor]:
        """The experts, and weights from one E-step with the current experts."""
        return cohort.broadcast(state.experts), self.e_step(state, state.pi[cohort.ids], cohort)[1]

    def observe(self, state: State, cohort: Cohort, group: str) -> State:
        """Unseen clients carry their weights from one evaluation to the next."""
        if group == "seen":
            return state
        _, pi = self.e_step(state, state.pi[cohort.ids], cohort)
        return state._replace(pi=cohort.put(state.pi, pi))

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Mixture weights of all clients [num_clients, E]."""
        return {"pi": state.pi}
