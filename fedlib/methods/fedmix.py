"""FedMix: a mixture of shared experts; a small table of q(e|y) assigns labels to experts.

    p(y|x, s) = sum_e p_e(y|x) p_s(e|x)     experts shared, gate of client s private
    client  trains experts, table phi and gate together, to maximise the mean of
            sum_e q(e|y) (log p_e(y|x) + log p_s(e|x)),   q(e|y) = softmax_e phi[y]
    server  takes a step of Adam along the mean differences: of expert e with weights p(s|e),
            proportional to q(e|s) p(s); of phi with weights p(s), minus the gradient of the entropy
            of sum_y q(.|y) / L, so that this entropy rises

q(e|s) is the mean of q(e|y) over a client's labels. It pools the gate's features and, with pruning,
decides which experts a client does not use. Predictions never look up q by the example's label.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724),
Algorithms 1 and 2; sections 1 to 4 and 7 of fedlib/papers/fedmix/README.md.
Deviation: the paper does not specify the following. Gates start uniform; pooling weights are
constants to the gradient; predictions use the marginals of the server's current table, also for
clients that took part long ago; for a new shard every gate pools the experts that its client keeps,
but weights all experts. "finetuned" is the mean over all clients, in the paper over the clients of
one round. Running statistics of batch normalisation, which the paper's models do not have, are
averaged.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import draw_experts, expert_losses, uniform_weights
from fedlib.engine.parts import Total
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import LogUniform, OneOf, Range
from fedlib.methods.parts import gating, tables, variational
from fedlib.methods.parts.gating import Gate, GatedClient, UnknownClient
from fedlib.methods.parts.output_bias import output_bias
from fedlib.methods.parts.variational import Report
from fedlib.methods.pooled_mixture import PooledMixture
from fedlib.tree import Tree

Model = dict[str, Tree]  # "experts" [E, ...], "phi" [R, E], "gate", and "bias" [L] if private
Facts = dict[str, Tensor]  # "shares" [R], "received" [E] bool, and "side" [N] if q depends on it


class State(NamedTuple):
    """The server's model, every client's private parts, and the memory of all optimisers."""

    experts: Params  # [E, ...], without a private bias
    phi: Tensor  # [R, E]
    gate: Gate  # shared by all clients; {} if gates are private
    private: Model  # "gate" unless shared, "bias" if private: leaves [num_clients, ...]
    memory: Memory
    marginal: Tensor  # [num_clients, E], q(e|s) from each client's last report
    adam: Tree  # memory of the server's Adam for experts, table and gate
    divergence: Tensor  # [horizon, E], gradient divergence of each round
    tables: Tensor  # [len(table_rounds), R, E], q(e|c) after these rounds; 0 before


class Results(NamedTuple):
    """The results of the clients' training."""

    experts: Report
    rest: Total  # differences of the table and a shared gate
    returned: Tensor  # [C, E] bool, the experts that each client uses
    q: Tensor  # [C, E], the clients' marginals
    private: Model


@dataclass(frozen=True, kw_only=True)
class FedMix(PooledMixture):
    """A mixture of whole models, weighted by gates.

    Absent clients have no weight, whatever the run's `aggregation` is.

    Attributes:
      condition: the condition of q: an example's "label", or its "side" information (the rotation,
        in Figures 5 and 6).
      num_sides: R, number of values of the side information, at least 1; 0 for labels.
      local_entropy: whether clients also maximise the entropy of q(e|y); then experts do not
        specialise (the paper's ablation, Figure 3).
      gates: "private": each client has its own gate, never sent; or "shared": trained and sent like
        the experts (the paper's choice for FEMNIST).
      private_bias: whether each client has its own output bias, the same for all its experts
        ("biased FedMix"); starting at zero is ours.
      pruning: the paper's eta, in [0, 1]: clients use the experts with q(e|s) >= eta / E. 0 keeps
        all (Algorithm 2; Figure 11 b and d).
      entropy_weight: factor of the entropy's gradient at the server, at least 0; 0 omits it, 1 is
        Algorithm 1.
      table_rounds: rounds after which the table is recorded, ascending (Figure 14 a).
      reads_labels: whether the server's guess of each client's label shares is recorded, from its
        q(e|s) (appendix C); exact only if the table tells all labels apart, so not with E < L.
    """

    condition: str = "label"
    num_sides: int = 0
    local_entropy: bool = False
    gates: str = "private"
    private_bias: bool = False
    pruning: float = 0.0
    entropy_weight: float = 1.0
    table_rounds: tuple[int, ...] = ()
    reads_labels: bool = False

    look = "FedMix", "#CC3311", (6, 1, 0), "solid", 2.1
    choices: ClassVar = {"condition": ("label", "side"), "gates": ("private", "shared")}
    ranges: ClassVar = PooledMixture.ranges | {"pruning": Range(0, 1), "entropy_weight": Range(0)}
    SPACE: ClassVar = {
        "num_experts": OneOf((2, 4)),
        "server_lr": LogUniform(1e-3, 1e-1),
        "entropy_weight": LogUniform(0.1, 3),
    }

    def __post_init__(self):
        """Raises ValueError for invalid settings."""
        PooledMixture.__post_init__(self)
        _ = self.bias  # raises if the head has no single bias
        if self.num_sides < 0 or (self.num_sides > 0) != (self.condition == "side"):
            raise ValueError(
                f"num_sides must be at least 1 for condition 'side' and 0 for 'label', got "
                f"{self.num_sides} for {self.condition!r}"
            )
        if self.reads_labels and self.condition != "label":
            raise ValueError(f"reads_labels needs condition 'label', got {self.condition!r}")
        tables.check_rounds(self.table_rounds)

    @cached_property
    def bias(self) -> str | None:
        """Name of the private bias, or None."""
        return output_bias(self.task) if self.private_bias else None

    @cached_property
    def num_rows(self) -> int:
        """R, rows of the table: labels or values of the side information."""
        return self.num_sides or self.task.num_labels

    def init(self, num_clients: int, seed: int) -> State:
        """New experts; the table and all gates uniform."""
        experts = draw_experts(self.task, self.num_experts, seed)
        like = next(iter(experts.values()))
        phi = like.new_zeros(self.num_rows, self.num_experts)
        gate = gating.uniform(self.task.num_features, self.num_experts, like)
        shared, private = (gate, {}) if self.gates == "shared" else ({}, {"gate": gate})
        if self.bias:
            private["bias"] = torch.zeros_like(experts.pop(self.bias)[0])
        model = {"experts": self.task.trainable(experts), "phi": phi, "gate": gate, **private}
        adam = {"experts": self.server.init(model["experts"], self.num_experts)}
        adam["phi"] = self.server.init(phi)
        if shared:
            adam["gate"] = self.server.init(shared)
        return State(
            experts=experts,
            phi=phi,
            gate=shared,
            private=tree.repeat(private, num_clients),
            memory=self.local.memory(model, num_clients),
            marginal=uniform_weights(num_clients, self.num_experts, like),
            adam=adam,
            divergence=like.new_zeros(self.horizon, self.num_experts),
            tables=self.record_table(phi.new_zeros(len(self.table_rounds), *phi.shape), phi, 0),
        )

    # -- a round ----------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Send the experts that are not pruned; train; update the server."""
        facts = self.facts(state, cohort)
        found, memory = self.train(state, cohort, facts, partial(self.results, state))
        cohort.collect_some(found.experts.differences, found.returned if self.pruning else None)
        cohort.collect(found.rest)
        after = self.server_update(state, found, cohort)
        return after._replace(
            private=cohort.put(state.private, found.private),
            memory=memory,
            marginal=cohort.put(state.marginal, found.q),
            tables=self.record_table(state.tables, after.phi, cohort.round + 1),
        )

    def facts(self, state: State, cohort: Cohort) -> Facts:
        """Each client's shares p(c|s), side information, and the experts that it receives."""
        received = variational.experts_to_send(state.marginal[cohort.ids], self.pruning)
        return self.shares(cohort) | {"received": received}

    def download(self, state: State, cohort: Cohort, received: Tensor) -> Model:
        """Each client's model after the download -> leaves [C, ...]"""
        experts = cohort.broadcast_some(state.experts, received if self.pruning else None)
        model = {"experts": experts, "phi": cohort.broadcast(state.phi)}
        if self.gates == "shared":
            model["gate"] = cohort.broadcast(state.gate)
        return model | tree.take(state.private, cohort.ids)

    def train(
        self, state: State, cohort: Cohort, facts: Facts, returns: Callable | None = None
    ) -> tuple[Tree, Memory]:
        """(the result of a local round, see `returns` of `Cohort.fit`; the solvers' memory)"""
        start = self.download(state, cohort, facts["received"])
        about = {"local": self.local, "memory": state.memory, "returns": returns}
        return cohort.fit(self.loss, start, facts, **about)

    def results(self, state: State, part: Cohort, trained: Model) -> Results:
        """The results of a part of the cohort: sums for the server, and private parts."""
        q, returned, weights = self.choose_experts(self.facts(state, part), trained["phi"])
        rest = {"phi": part.held(state.phi) - trained["phi"]}
        if self.gates == "shared":
            rest["gate"] = tree.sub(part.held(state.gate), trained["gate"])
        experts = self.report(state, trained["experts"], weights, part)
        private = {name: trained[name] for name in state.private}
        return Results(experts, part.total(rest), returned, q, private)

    # -- a client ----------------------------------------------------------------------

    def shares(self, cohort: Cohort) -> Facts:
        """Each client's shares p(c|s) and, if q depends on it, its side information."""
        side = {"side": cohort.side()} if self.condition == "side" else {}
        return {"shares": cohort.shares(self.condition, self.num_rows), **side}

    def loss(self, model: Model, facts: Facts, batch: Batch) -> Tensor:
        """One client's objective, negated -> []"""
        phi = model["phi"]
        _, keep, pooling = self.choose_experts(facts, phi.detach())
        features, log_probs = gating.outputs(self.task, self.whole(model), batch)
        pooled = gating.pool(pooling, features)
        given = batch.y.long() if self.condition == "label" else facts["side"][batch.index]
        bound = variational.bound(
            phi.softmax(-1)[given],
            log_likelihood=-expert_losses(log_probs, batch.y, self.task.class_weights),
            log_gate=gating.log_weights(model["gate"], pooled),
            kept=variational.kept_table(phi, keep)[given] if self.pruning else None,
        )
        if self.local_entropy:
            bound = bound + variational.entropy(phi)[given]
        return -batch.mean(bound)

    def choose_experts(self, facts: Facts, phi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(q(e|s), which experts the client uses, q over these alone), each [..., E]"""
        q = variational.marginal(facts["shares"], phi)
        keep = variational.keep(q, facts["received"], self.pruning)
        return q, keep, variational.kept_part(q, keep) if self.pruning else q

    def whole(self, model: Model) -> Params:
        """The experts with their bias, private or not -> [..., E, ...]"""
        if not self.bias:
            return model["experts"]
        bias = model["bias"].unsqueeze(-2)
        sizes = *bias.shape[:-2], self.num_experts, bias.shape[-1]
        return {**model["experts"], self.bias: bias.expand(sizes)}

    def predictors(self, model: Model, facts: Facts) -> GatedClient:
        """The clients' predictors, from their models [C, ...]."""
        _, keep, pooling = self.choose_experts(facts, model["phi"])
        return GatedClient(self.whole(model), model["gate"], pooling, keep)

    # -- the server -------------------------------------------------------------------

    def server_update(self, state: State, found: Results, cohort: Cohort) -> State:
        """Steps of Adam along the clients' differences."""
        adam, rest = dict(state.adam), found.rest.mean()
        after, adam["experts"] = self.step(state, found.experts, adam["experts"], cohort)
        towards = rest["phi"]
        if self.entropy_weight:
            prior = torch.ones_like(state.phi[:, 0]) / self.num_rows  # p(c), uniform
            towards = towards - self.entropy_weight * variational.entropy_gradient(state.phi, prior)
        phi, adam["phi"] = self.server.step(state.phi, towards, state.adam["phi"])
        gate = state.gate
        if self.gates == "shared":
            gate, adam["gate"] = self.server.step(gate, rest["gate"], state.adam["gate"])
        return after._replace(phi=phi, gate=gate, adam=adam)

    def record_table(self, recorded: Tensor, phi: Tensor, round: int) -> Tensor:
        """The recorded tables, with q(e|c) after `round` rounds if it is one of `table_rounds`."""
        return tables.record(recorded, self.table_rounds, round, lambda: phi.softmax(-1))

    # -- evaluation -------------------------------------------------------------------

    def personalise(self, state: State, cohort: Cohort) -> GatedClient:
        """The server's experts and table, and each client's gate."""
        facts = self.facts(state, cohort)
        return self.predictors(self.download(state, cohort, facts["received"]), facts)

    def finetune(self, state: State, cohort: Cohort) -> GatedClient:
        """Each client's model after local training in a further round, before its upload."""
        facts = self.facts(state, cohort)
        return self.predictors(self.train(state, cohort, facts)[0], facts)

    def welcome(self, state: State, cohort: Cohort) -> GatedClient:
        """New clients with labels: a gate, and a private bias, fitted to frozen experts and table.

        They receive all experts.
        """
        everything = torch.ones_like(state.marginal[cohort.ids], dtype=torch.bool)
        facts = self.shares(cohort) | {"received": everything}
        frozen = {"experts": state.experts, "phi": state.phi}
        frozen |= {"gate": state.gate} if self.gates == "shared" else {}

        def loss(own: Model, facts: Facts, batch: Batch) -> Tensor:
            # Training mode would change the running statistics of the experts.
            batch = batch._replace(train=False) if self.task.statistics else batch
            return self.loss({**frozen, **own}, facts, batch)

        if own := tree.map(torch.zeros_like, tree.take(state.private, cohort.ids)):
            local = replace(self.local, epochs=self.gate_epochs, steps=None)
            own, _ = cohort.fit(loss, own, facts, local=local, stream="welcome")
        return self.predictors({**cohort.broadcast(frozen), **own}, facts)

    def anybody(self, state: State, cohort: Cohort) -> UnknownClient:
        """For a shard without labels: all seen clients' gates, and the mean of their biases."""
        seen = cohort.seen()
        facts, own = self.facts(state, seen), tree.take(state.private, seen.ids)
        q, _, pooling = self.choose_experts(facts, state.phi)
        bias = {"bias": own["bias"].mean(0)} if self.bias else {}
        log_prior = (seen.num_examples / seen.num_examples.sum()).log().to(q.dtype)
        gates = state.gate if self.gates == "shared" else own["gate"]
        experts = self.whole({"experts": state.experts, **bias})
        return cohort.broadcast(UnknownClient(experts, gates, pooling, log_prior))

    def measure(self, protocol: str, personal: Tree, cohort: Cohort) -> dict[str, Tensor]:
        """True shares of the labels [C, L], if the server reads them."""
        return {"labels": cohort.shares("label", self.num_rows)} if self.reads_labels else {}

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Marginals [num_clients, E]; divergence [horizon, E] and tables [S, R, E] if recorded.

        "table_rounds" [S] are the rounds of the tables, without rounds that the run did not reach.
        "recovered" [num_clients, L] are the shares of labels that the server reads, if it does.
        """
        found = PooledMixture.diagnostics(self, state) | {"marginal": state.marginal}
        if self.reads_labels:
            found["recovered"] = variational.read_shares(state.marginal, state.phi)
        if self.table_rounds:
            found |= tables.diagnostics(self.table_rounds, state.tables)
        return found

    @property
    def alike(self) -> frozenset[str]:
        """Protocols with the same experts; none with a private bias."""
        return frozenset() if self.bias else frozenset({"default", "new_shard"})
