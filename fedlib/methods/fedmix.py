"""FedMix: a mixture of experts that a small table, the same for all clients, tells apart.

    p(y|x, s) = sum_e p_e(y|x) p_s(e|x)     experts of all clients, a gate of each client's own
    client  trains experts, table phi and gate at once, to maximise the mean of
            sum_e q(e|y) (log p_e(y|x) + log p_s(e|x)),   q(e|y) = softmax_e phi[y]
    server  takes steps of Adam along differences: those of expert e weighted by p(s|e), which is
            proportional to q(e|s) p(s); those of phi by p(s), minus the gradient of the entropy of
            q, so that it grows

q(e|s), the mean of q(e|y) over a client's labels, says how the gate's features are pooled and, with
pruning, which experts a client does without. Nobody looks q up by the label of an example that is
to be predicted.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724),
Algorithms 1 and 2; specification sections 1 to 4 and 7.
Deviation: where the paper is silent, gates begin uniform [R]; pooling weights are constants to the
gradient [R]; predictions use the marginals of the server's table as it is now, also of clients that
took part long ago; for a new shard every gate pools the experts that its client keeps, but speaks
of all, which are there. "finetuned" is the mean over all clients, the paper's over those of one
round. Running statistics of batch normalisation, which the paper's models have not, are averaged.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import draw_experts, uniform_weights
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Range
from fedlib.methods.parts import gating, tables, variational
from fedlib.methods.parts.gating import Anybody, Gate, Known
from fedlib.methods.table_mixture import Facts, Model, TableMixture
from fedlib.tree import Tree


class State(NamedTuple):
    """What the server has, what every client keeps, and what all optimisers remember."""

    experts: Params  # [E, ...], without a private bias
    phi: Tensor  # [R, E]
    gate: Gate  # of all clients; {} if each has its own
    private: Model  # "gate" unless shared, "bias" if private: leaves [num_clients, ...]
    memory: Memory
    marginal: Tensor  # [num_clients, E], q(e|s) as last reported
    adam: Tree  # of the server's experts, table and gate
    divergence: Tensor  # [horizon, E], of the rounds' differences
    tables: Tensor  # [len(table_rounds), R, E], q(e|c) after these rounds; 0 before


@dataclass(frozen=True, kw_only=True)
class FedMix(TableMixture):
    """A mixture of whole models, weighed by the input.

    Absent clients count for nothing, whatever the run's `aggregation` is.

    Attributes:
      entropy_weight: factor of the entropy's gradient at the server; 0 leaves it out.
      prior: p(c) in this entropy: "uniform", or "empirical", of the seen clients' examples.
      reweight: whether an expert's differences are weighted by p(s|e), or by p(s).
      table_rounds: rounds after which the table is recorded.
    """

    entropy_weight: float = 1.0
    prior: str = "uniform"
    reweight: bool = True
    table_rounds: tuple[int, ...] = ()

    choices: ClassVar = TableMixture.choices | {"prior": ("uniform", "empirical")}
    ranges: ClassVar = TableMixture.ranges | {"entropy_weight": Range(0)}

    def __post_init__(self):
        """Raises ValueError for settings that mean nothing."""
        TableMixture.__post_init__(self)
        object.__setattr__(self, "table_rounds", tables.checked_rounds(self.table_rounds))

    def init(self, num_clients: int, seed: int) -> State:
        """Experts as `expert_seeds` says; the table and all gates uniform."""
        experts = draw_experts(self.task, self.num_experts, seed, self.expert_seeds)
        like = next(iter(experts.values()))
        phi = like.new_zeros(self.num_rows, self.num_experts)
        gate = gating.uniform(gating.features_of(self.task), self.num_experts, like)
        shared, private = (gate, {}) if self.gates == "shared" else ({}, {"gate": gate})
        if self.bias:
            private["bias"] = torch.zeros_like(experts.pop(self.bias)[0])
        model = {"experts": self.task.trainable(experts), "phi": phi, "gate": gate, **private}
        adam = {"experts": self.server.init(model["experts"], self.num_experts)}
        adam["phi"] = self.server.init(phi)
        if shared:
            adam["gate"] = self.server.init(shared)
        return State(
            experts,
            phi,
            shared,
            tree.repeat(private, num_clients),
            self.local.memory(model, num_clients),
            uniform_weights(num_clients, self.num_experts, like),
            adam,
            like.new_zeros(self.horizon, self.num_experts),
            self.tabulated(phi.new_zeros(len(self.table_rounds), *phi.shape), phi, 0),
        )

    # -- a round ----------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Send what is not pruned, train, step on the server; what is private stays."""
        facts = self.facts(state, cohort)
        trained, memory = self.train(state, cohort, facts)
        q = variational.marginal(facts["shares"], trained["phi"])
        returned = variational.keep(q, facts["received"], self.pruning)
        after = self.server_update(
            state, self.upload(trained, returned, cohort), q, returned, cohort
        )
        return after._replace(
            private=tree.put(state.private, cohort.ids, {x: trained[x] for x in state.private}),
            memory=memory,
            marginal=tree.put(state.marginal, cohort.ids, q),
            tables=self.tabulated(state.tables, after.phi, cohort.round + 1),
        )

    def facts(self, state: State, cohort: Cohort) -> Facts:
        """What clients know of their data, and which experts they get."""
        received = variational.sent(state.marginal[cohort.ids], self.pruning)
        return self.shares(cohort) | {"received": received}

    def download(self, state: State, cohort: Cohort, received: Tensor) -> Model:
        """Each client's model after the server has sent its part -> leaves [C, ...]"""
        experts = cohort.broadcast_some(state.experts, received if self.pruning else None)
        model = {"experts": experts, "phi": cohort.broadcast(state.phi)}
        if self.gates == "shared":
            model["gate"] = cohort.broadcast(state.gate)
        return model | tree.take(state.private, cohort.ids)

    def train(self, state: State, cohort: Cohort, facts: Facts) -> tuple[Model, Memory]:
        """Everything that clients have after a local round, and what their solvers remember."""
        start = self.download(state, cohort, facts["received"])
        return cohort.fit(self.loss, start, facts, local=self.local, memory=state.memory)

    def upload(self, trained: Model, returned: Tensor, cohort: Cohort) -> Model:
        """What the clients return: the experts `returned` [C, E], table, and a shared gate."""
        experts = cohort.collect_some(trained["experts"], returned if self.pruning else None)
        gate = {"gate": cohort.collect(trained["gate"])} if self.gates == "shared" else {}
        return {"experts": experts, "phi": cohort.collect(trained["phi"])} | gate

    # -- the server -------------------------------------------------------------------

    def server_update(
        self, state: State, uploaded: Model, q: Tensor, returned: Tensor, cohort: Cohort
    ) -> State:
        """Adam on the differences of what was `uploaded`, leaves [C, ...]

        Args:
          q: [C, E] the clients' marginals.
          returned: [C, E] bool.
        """
        p = cohort.num_examples / cohort.num_examples.sum()
        weights = p.unsqueeze(-1) * returned
        if self.reweight:
            part = variational.kept_part(q, returned) if self.pruning else q
            weights = variational.reweighted(part, p)
        adam = dict(state.adam)
        after, adam["experts"] = self.step(
            state, uploaded["experts"], weights, adam["experts"], cohort
        )
        towards = tree.combine(cohort.held(state.phi) - uploaded["phi"], p)
        if self.entropy_weight:
            slope = variational.entropy_gradient(state.phi, self.prior_of(cohort))
            towards = towards - self.entropy_weight * slope
        phi, adam["phi"] = self.server.step(state.phi, towards, state.adam["phi"])
        gate = state.gate
        if self.gates == "shared":
            towards = tree.combine(tree.sub(cohort.held(gate), uploaded["gate"]), p)
            gate, adam["gate"] = self.server.step(gate, towards, state.adam["gate"])
        return after._replace(phi=phi, gate=gate, adam=adam)

    def prior_of(self, cohort: Cohort) -> Tensor:
        """p(c) in the entropy -> [R]"""
        if self.prior == "uniform":
            shares = torch.ones(self.num_rows, device=cohort.ids.device, dtype=self.task.dtype)
            return shares / self.num_rows
        seen = cohort.seen()
        return tree.mean(seen.shares(self.condition, self.num_rows), seen.num_examples)

    def tabulated(self, recorded: Tensor, phi: Tensor, round: int) -> Tensor:
        """The tables so far, with q(e|c) after `round` rounds if it is one of `table_rounds`."""
        return tables.tabulated(recorded, self.table_rounds, round, lambda: phi.softmax(-1))

    # -- evaluation -------------------------------------------------------------------

    def personalise(self, state: State, cohort: Cohort) -> Known:
        """Experts and table as the server has them, and each client's gate."""
        facts = self.facts(state, cohort)
        return self.known(self.download(state, cohort, facts["received"]), facts)

    def finetune(self, state: State, cohort: Cohort) -> Known:
        """What each client would have before its upload, if the next round were with it."""
        facts = self.facts(state, cohort)
        return self.known(self.train(state, cohort, facts)[0], facts)

    def welcome(self, state: State, cohort: Cohort) -> Known:
        """New clients with labels: a gate, and a private bias, fitted to frozen experts and table.

        They have been sent all experts.
        """
        everything = torch.ones_like(state.marginal[cohort.ids], dtype=torch.bool)
        facts = self.shares(cohort) | {"received": everything}
        frozen = {"experts": state.experts, "phi": state.phi}
        frozen |= {"gate": state.gate} if self.gates == "shared" else {}

        def loss(own: Model, facts: Facts, batch: Batch) -> Tensor:
            # Training would renew the running statistics of the experts.
            batch = batch._replace(train=False) if self.task.statistics else batch
            return self.loss({**frozen, **own}, facts, batch)

        own = tree.map(torch.zeros_like, tree.take(state.private, cohort.ids))
        if own:
            local = replace(self.local, epochs=self.gate_epochs, steps=None)
            own, _ = cohort.fit(loss, own, facts, local=local, stream="welcome")
        return self.known({**cohort.broadcast(frozen), **own}, facts)

    def anybody(self, state: State, cohort: Cohort) -> Anybody:
        """A shard without labels: the mean of all seen clients' gates, and of their biases."""
        seen = cohort.seen()
        facts, own = self.facts(state, seen), tree.take(state.private, seen.ids)
        q = variational.marginal(facts["shares"], state.phi)
        keep = variational.keep(q, facts["received"], self.pruning)
        bias = {"bias": own["bias"].mean(0)} if self.bias else {}
        log_prior = (seen.num_examples / seen.num_examples.sum()).log().to(q.dtype)
        gates = state.gate if self.gates == "shared" else own["gate"]
        experts = self.whole({"experts": state.experts, **bias})
        return cohort.broadcast(Anybody(experts, gates, self.pooling(q, keep), log_prior))

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Marginals [num_clients, E]; divergence [horizon, E] and tables [S, R, E] if recorded.

        "table_rounds" [S] are the rounds of the tables; those that never came have none.
        """
        found = TableMixture.diagnostics(self, state) | {"marginal": state.marginal}
        if self.table_rounds:
            found |= tables.diagnostics(state.tables, self.table_rounds)
        return found
