"""FedMix that clusters clients: every client has its own distribution pi over the experts.

    mini-batch  pi <- 0.75 pi + 0.25 softmax_e( mean_i log p_e(y_i|x_i) p_s(e|x_i) / beta )
                a step of experts and gate to maximise mean_i sum_e pi_e log p_e(y_i|x_i) p_s(e|x_i)
    server      Adam along the differences, of expert e with weights p(s|e) ~ pi_e p(s)

pi takes the place of q(e|y), so there is no table and no entropy term at the server. The softmax is
the closed-form maximum of the bound with beta times the entropy of pi. pi also pools the gate's
features.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724),
section 4.3 and appendix B; section 7.2 of fedlib/papers/fedmix/README.md.
Deviation: the paper does not specify the following. pi and gates start uniform; each is constant in
the other's update. New clients with labels fit both to the frozen experts. For a new shard the
gates of all seen clients are averaged, as in FedMix; if clusters permute labels, an input does not
show its cluster. Fine-tuned accuracy is over all clients, in the paper over the clients of one
round. Running statistics of batch normalisation, which the paper's models do not have, are averaged
without Adam.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import draw_experts, expert_losses, uniform_weights
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params, Task
from fedlib.methods.base import LogUniform, OneOf, Range
from fedlib.methods.parts import gating, variational
from fedlib.methods.parts.gating import Gate, GatedClient, UnknownClient
from fedlib.methods.pooled_mixture import PooledMixture
from fedlib.tree import Tree

Model = dict[str, Tree]  # "experts" [E, ...], "gate" and "pi" [E]


class State(NamedTuple):
    """The server's experts, every client's gate and pi, and the memory of all optimisers."""

    experts: Params  # [E, ...]
    private: Gate  # leaves [num_clients, ...]
    pi: Tensor  # [num_clients, E]
    memory: Memory
    adam: Tree  # memory of the server's Adam
    divergence: Tensor  # [horizon, E], gradient divergence of each round


@dataclass(frozen=True)
class SortingTask(Task):
    """The experts' task, with pi as a running statistic.

    pi is updated on every mini-batch and has no gradient, like a running statistic.
    """

    @cached_property
    def statistics(self) -> frozenset[str]:
        """Names of the experts' running statistics, and pi."""
        return super().statistics | {"pi"}


@dataclass(frozen=True, kw_only=True)
class FedMixClients(PooledMixture):
    """A mixture of whole models; each client comes to use one or a few of them.

    Absent clients have no weight, whatever the run's `aggregation` is.

    Attributes:
      beta: temperature of pi and weight of its entropy, above 0; 1 in the paper (appendix B).
      damping: share of the mini-batch's estimate in the new pi, in (0, 1]; 1 forgets the old pi.
        0.25 in the paper (appendix B).
    """

    beta: float = 1.0
    damping: float = 0.25

    look = "FedMix by clients", "#33BBEE", (3, 0, 0), "solid"
    ranges: ClassVar = PooledMixture.ranges | {
        "beta": Range(0, ends="(]"),
        "damping": Range(0, 1, "(]"),
    }
    SPACE: ClassVar = {"num_experts": OneOf((2, 3, 4, 6)), "beta": LogUniform(0.1, 10)}
    alike: ClassVar = frozenset({"default", "new_shard"})  # the experts

    @cached_property
    def sorting(self) -> SortingTask:
        """The task that trains experts and gate and updates pi."""
        return self.task.extend(SortingTask)

    def init(self, num_clients: int, seed: int) -> State:
        """New experts; uniform gates and pi."""
        experts = draw_experts(self.task, self.num_experts, seed)
        like = next(iter(experts.values()))
        gates, pi = self.uniform_gates(num_clients, like)
        weights = self.task.trainable(experts)
        model = {"experts": weights, "gate": tree.take(gates, 0)}
        return State(
            experts=experts,
            private=gates,
            pi=pi,
            memory=self.local.memory(model, num_clients),
            adam=self.server.init(weights, self.num_experts),
            divergence=like.new_zeros(self.horizon, self.num_experts),
        )

    def uniform_gates(self, num_clients: int, like: Tensor) -> tuple[Gate, Tensor]:
        """Uniform gates, leaves [num_clients, ...], and uniform pi [num_clients, E]."""
        gate = gating.uniform(self.task.num_features, self.num_experts, like)
        return tree.repeat(gate, num_clients), uniform_weights(num_clients, self.num_experts, like)

    # -- a round ----------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Train and update pi on every client, then the server's step of each expert."""

        def returns(part: Cohort, trained: Model) -> tuple:
            found = self.report(state, trained["experts"], trained["pi"], part)
            return found, trained["gate"], trained["pi"]

        (found, gates, pi), memory = self.train(state, cohort, returns)
        cohort.collect(found.differences)  # pi is not counted, as it is small
        after, adam = self.step(state, found, state.adam, cohort)
        private, pi = cohort.put((state.private, state.pi), (gates, pi))
        return after._replace(private=private, pi=pi, memory=memory, adam=adam)

    def train(
        self, state: State, cohort: Cohort, returns: Callable | None = None
    ) -> tuple[Tree, Memory]:
        """(the result of a local round, see `returns` of `Cohort.fit`; the solvers' memory)"""
        start = self.download(state, cohort)
        about = {"local": self.local, "memory": state.memory, "returns": returns}
        return replace(cohort, task=self.sorting).fit(self.loss, start, **about)

    def download(self, state: State, cohort: Cohort) -> Model:
        """Each client's model after the download -> leaves [C, ...]"""
        own = tree.take({"gate": state.private, "pi": state.pi}, cohort.ids)
        return {"experts": cohort.broadcast(state.experts), **own}

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The negated objective with constant pi, which training first updates in place -> []"""
        return self.objective(model, batch, batch)

    def objective(self, model: Model, batch: Batch, experts_batch: Batch) -> Tensor:
        """See `loss`; experts get `experts_batch`, everything else `batch`."""
        features, log_probs = gating.outputs(self.task, model["experts"], experts_batch)
        likelihoods = -expert_losses(log_probs, batch.y, self.task.class_weights)
        pi = model["pi"]
        if batch.train:
            with torch.no_grad():
                joint = likelihoods + self.log_gate(model["gate"], pi, features)
                pi = self.update_pi(pi, joint, batch)
                model["pi"].copy_(pi)
        log_gate = self.log_gate(model["gate"], pi, features)
        return -batch.mean(variational.bound(pi, likelihoods, log_gate))

    def log_gate(self, gate: Gate, pi: Tensor, features: Tensor) -> Tensor:
        """log p_s(e|x) from the experts' features [B, E, F] -> [B, E]"""
        return gating.log_weights(gate, gating.pool(pi, features))

    def update_pi(self, pi: Tensor, joint: Tensor, batch: Batch) -> Tensor:
        """pi [E] after a batch whose log p_e(y|x) p_s(e|x) are `joint` [B, E] -> [E]"""
        mean = vmap(batch.mean, in_dims=1)(joint)
        return (1 - self.damping) * pi + self.damping * (mean / self.beta).softmax(-1)

    # -- evaluation -------------------------------------------------------------------

    def personalise(self, state: State, cohort: Cohort) -> GatedClient:
        """The experts, and each client's gate and pi."""
        return self.predictors(self.download(state, cohort), cohort)

    def predictors(self, model: Model, cohort: Cohort) -> GatedClient:
        """The clients' predictors, from their models [C, ...]; every client has all experts."""
        keep = torch.ones_like(model["pi"][0], dtype=torch.bool)
        return GatedClient(model["experts"], model["gate"], model["pi"], cohort.held(keep))

    def welcome(self, state: State, cohort: Cohort) -> GatedClient:
        """The frozen experts; a new client with labels fits its gate and pi."""
        gate, pi = self.uniform_gates(cohort.size, state.pi)
        experts = state.experts  # the state has tensors of the host, which no graph may read

        def loss(own: Model, batch: Batch) -> Tensor:
            # Training mode would change the running statistics of the experts.
            of_experts = batch._replace(train=False) if self.task.statistics else batch
            return self.objective({"experts": experts, **own}, batch, of_experts)

        local = replace(self.local, epochs=self.gate_epochs, steps=None)
        own = {"gate": gate, "pi": pi}
        clients = replace(cohort, task=self.sorting)
        own, _ = clients.fit(loss, own, local=local, stream="welcome")
        return self.predictors({"experts": cohort.broadcast(experts), **own}, cohort)

    def finetune(self, state: State, cohort: Cohort) -> GatedClient:
        """Each client's model after local training in a further round, before its upload."""
        return self.predictors(self.train(state, cohort)[0], cohort)

    def anybody(self, state: State, cohort: Cohort) -> UnknownClient:
        """For a shard of unknown origin: the gates of all seen clients."""
        seen = cohort.seen()
        log_prior = (seen.num_examples / seen.num_examples.sum()).log().to(state.pi.dtype)
        own = tree.take((state.private, state.pi), seen.ids)
        return cohort.broadcast(UnknownClient(state.experts, *own, log_prior))

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Mixture weights [num_clients, E]; gradient divergence [horizon, E], if recorded."""
        return {"pi": state.pi} | PooledMixture.diagnostics(self, state)
