"""FedMix that sorts whole clients: every client has its own distribution pi over the experts.

    mini-batch  pi <- 0.75 pi + 0.25 softmax_e( mean_i log p_e(y_i|x_i) p_s(e|x_i) / beta )
                a step on experts and gate to maximise mean_i sum_e pi_e log p_e(y_i|x_i) p_s(e|x_i)
    server      Adam on differences, those of expert e weighted by p(s|e) ~ pi_e p(s)

pi takes the place of q(e|y), so there is no table, and no entropy to raise at the server. The
softmax maximises the bound with beta times the entropy of pi in closed form; pi pools the features
that the gate is fed with, too.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724),
section 4.3 and appendix B; specification section 7.2.
Deviation: the paper says nothing of these. pi and gates begin uniform; both are constants where the
other one is found, and pi to the gradient. New clients with labels find both with the experts as
they are. For a new shard the gates of all seen clients are averaged, as in FedMix; where clusters
differ in what they call a label, nobody can tell of which it is. Fine-tuned accuracy is that of all
clients, not of those of one round only. Running statistics of batch normalisation, which the
paper's models do not have, are averaged without Adam.
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
from fedlib.methods.base import Range
from fedlib.methods.parts import gating, variational
from fedlib.methods.parts.gating import Anybody, Gate, Known
from fedlib.methods.parts.settings import LogUniform, OneOf
from fedlib.methods.pooled_mixture import PooledMixture
from fedlib.tree import Tree

Model = dict[str, Tree]  # "experts" [E, ...], "gate" and "pi" [E]


class State(NamedTuple):
    """The server's experts, what every client has found, and what all optimisers remember."""

    experts: Params  # [E, ...]
    private: Gate  # leaves [num_clients, ...]
    pi: Tensor  # [num_clients, E]
    memory: Memory
    adam: Tree  # of the server
    divergence: Tensor  # [horizon, E], of the clients' differences in each round


@dataclass(frozen=True)
class SortingTask(Task):
    """The experts' task for clients that find their pi along with it.

    pi is renewed on every mini-batch and not trained, like a running statistic, and is kept as one.
    """

    @cached_property
    def statistics(self) -> frozenset[str]:
        """Names of the experts' running statistics, and pi."""
        return super().statistics | {"pi"}

    @property
    def needs_pairs(self) -> bool:
        """Whether the experts need two examples to a training batch."""
        return bool(self.statistics - {"pi"})


@dataclass(frozen=True, kw_only=True)
class FedMixClients(PooledMixture):
    """A mixture of whole models, one or a few of which each client settles on.

    Absent clients count for nothing, whatever the run's `aggregation` is.

    Attributes:
      beta: temperature of pi, weight of its entropy; the paper's is 1.
      damping: share of what a mini-batch says in the new pi, in (0, 1]; 1 forgets the old one.
    """

    beta: float = 1.0
    damping: float = 0.25

    ranges: ClassVar = PooledMixture.ranges | {
        "beta": Range(0, ends="(]"),
        "damping": Range(0, 1, "(]"),
    }
    SPACE: ClassVar = {"num_experts": OneOf((2, 3, 4, 6)), "beta": LogUniform(0.1, 10)}
    alike: ClassVar = frozenset({"default", "new_shard"})  # the experts

    @cached_property
    def sorting(self) -> SortingTask:
        """Experts, gate and pi, as they are trained."""
        return self.task.extended(SortingTask)

    def init(self, num_clients: int, seed: int) -> State:
        """Experts as `expert_seeds` says; everything else uniform."""
        experts = draw_experts(self.task, self.num_experts, seed, self.expert_seeds)
        like = next(iter(experts.values()))
        gates, pi = self.undecided(num_clients, like)
        weights = self.task.trainable(experts)
        trained = {"experts": weights, "gate": tree.take(gates, 0)}
        return State(
            experts,
            gates,
            pi,
            self.local.memory(trained, num_clients),
            self.server.init(weights, self.num_experts),
            like.new_zeros(self.horizon, self.num_experts),
        )

    def undecided(self, num_clients: int, like: Tensor) -> tuple[Gate, Tensor]:
        """Gates, leaves [num_clients, ...], and pi [num_clients, E] that know nothing."""
        gate = gating.uniform(gating.features_of(self.task), self.num_experts, like)
        pi = uniform_weights(num_clients, self.num_experts, like)
        return tree.repeat(gate, num_clients), pi

    # -- a round ----------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Train and sort on every client, then the server's step on each expert."""

        def returns(part: Cohort, trained: Model) -> tuple:
            found = self.report(state, trained["experts"], trained["pi"], part)
            return found, trained["gate"], trained["pi"]

        (found, gates, pi), memory = self.train(state, cohort, returns)
        cohort.collect(found.differences)  # and pi, which is too little to count
        after, adam = self.step(state, found, state.adam, cohort)
        return after._replace(
            private=cohort.put(state.private, gates),
            pi=cohort.put(state.pi, pi),
            memory=memory,
            adam=adam,
        )

    def train(
        self, state: State, cohort: Cohort, returns: Callable | None = None
    ) -> tuple[Tree, Memory]:
        """What is kept of a local round, see `Cohort.fit`, and what the solvers remember."""
        start = self.download(state, cohort)
        about = {"local": self.local, "memory": state.memory, "returns": returns}
        return self.sorting_clients(cohort).fit(self.loss, start, **about)

    def download(self, state: State, cohort: Cohort) -> Model:
        """Each client's model after the server has sent its part -> leaves [C, ...]"""
        own = tree.take({"gate": state.private, "pi": state.pi}, cohort.ids)
        return {"experts": cohort.broadcast(state.experts), **own}

    def sorting_clients(self, cohort: Cohort) -> Cohort:
        """The same clients, who keep a pi with what they train."""
        return replace(cohort, task=self.sorting)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The objective with pi held fixed; in training it is renewed, in place, before -> []"""
        return self.objective(model, batch, batch)

    def objective(self, model: Model, batch: Batch, experts_batch: Batch) -> Tensor:
        """See `loss`; the experts see `experts_batch`."""
        features, log_probs = gating.outputs(self.task, model["experts"], experts_batch)
        likelihoods = -expert_losses(log_probs, batch.y, self.task.class_weights)
        if not self.grad_to_features:
            features = features.detach()
        pi = model["pi"]
        if batch.train:
            with torch.no_grad():
                joint = likelihoods + self.log_gate(model["gate"], pi, features)
                pi = self.renewed(pi, joint, batch)
                model["pi"].copy_(pi)
        log_gate = self.log_gate(model["gate"], pi, features)
        return -batch.mean(variational.bound(pi, likelihoods, log_gate))

    def log_gate(self, gate: Gate, pi: Tensor, features: Tensor) -> Tensor:
        """log p_s(e|x) from the experts' features [B, E, F] -> [B, E]"""
        return gating.log_weights(gate, gating.pool(pi, features))

    def renewed(self, pi: Tensor, joint: Tensor, batch: Batch) -> Tensor:
        """pi [E] after a batch whose log p_e(y|x) p_s(e|x) are `joint` [B, E] -> [E]"""
        mean = vmap(batch.mean, in_dims=1)(joint)
        return (1 - self.damping) * pi + self.damping * (mean / self.beta).softmax(-1)

    # -- evaluation -------------------------------------------------------------------

    def personalise(self, state: State, cohort: Cohort) -> Known:
        """The experts, and the gate and pi that each client has."""
        return self.known(self.download(state, cohort), cohort)

    def known(self, model: Model, cohort: Cohort) -> Known:
        """How clients predict with their models [C, ...]: all have all experts."""
        keep = torch.ones_like(model["pi"][0], dtype=torch.bool)
        return Known(model["experts"], model["gate"], model["pi"], cohort.held(keep))

    def welcome(self, state: State, cohort: Cohort) -> Known:
        """The experts as they are; a new client with labels finds its gate and pi."""
        gate, pi = self.undecided(cohort.size, state.pi)

        def loss(own: Model, batch: Batch) -> Tensor:
            # Training would renew the running statistics of the experts.
            of_experts = batch._replace(train=False) if self.task.statistics else batch
            return self.objective({"experts": state.experts, **own}, batch, of_experts)

        local = replace(self.local, epochs=self.gate_epochs, steps=None)
        own = {"gate": gate, "pi": pi}
        own, _ = self.sorting_clients(cohort).fit(loss, own, local=local, stream="welcome")
        return self.known({"experts": cohort.broadcast(state.experts), **own}, cohort)

    def finetune(self, state: State, cohort: Cohort) -> Known:
        """What each client would have before its upload, if the next round were with it."""
        return self.known(self.train(state, cohort)[0], cohort)

    def anybody(self, state: State, cohort: Cohort) -> Anybody:
        """The gates of all seen clients, for a shard that might be of any of them."""
        seen = cohort.seen()
        log_prior = (seen.num_examples / seen.num_examples.sum()).log().to(state.pi.dtype)
        own = tree.take((state.private, state.pi), seen.ids)
        return cohort.broadcast(Anybody(state.experts, *own, log_prior))

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Mixture weights [num_clients, E]; the divergence [horizon, E], if it was recorded."""
        return {"pi": state.pi} | PooledMixture.diagnostics(self, state)
