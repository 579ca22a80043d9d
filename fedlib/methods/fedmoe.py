"""Fed-MoE: compact models on clients, and a mixture of experts of them on the server.

    A  clients  train their own models M_j
    B  server   T times: relevance R of clients for experts, by the gate G and by how sure M_j is
                of the probe's labels; W^r, its softmax over clients
                E_0 <- (1 - lam) E_0 + lam mean_j M_j
                E_i <- (1 - lam) E_i + lam sum_j W^r_ij M_j
                train G and alpha on the server's own examples
    C  server   W^c, what each client takes from the experts
                M_j <- lam M_j + (1 - lam) sum_i W^c_ij E_i

The server predicts with y = (1 - alpha) E_0(x) + alpha sum_i G_i(x) E_i(x), for everybody. Of all
mixtures it had, the one with the least loss on its validation examples is kept, as a copy.

Source: Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025 (doi 10.24963/ijcai.2025/610), Algorithm 1, Equations 1 to 13.
Official code: FancyAI-SCNU/FedMoE_IJCAI_2025, which differs from the paper in much.
Deviation: experts that the server does not train are asked in evaluation mode, one at a time, once
after they have moved; training the gate then reads what they said of each example. Batch
normalisation has no integer counters here, so that all of a model can be averaged.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib import streams, tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Batch, Params, nll
from fedlib.methods.base import Range
from fedlib.methods.gated_mixture import PREDICTS, Model
from fedlib.methods.parts import chosen, relevance, round_log, tables
from fedlib.methods.parts.chosen import Chosen
from fedlib.methods.parts.own_models import drawn_in_turn, never_trained
from fedlib.methods.parts.settings import Uniform
from fedlib.methods.trained_mixture import TrainedMixture
from fedlib.tree import Rows

OWN = "own"  # protocol, and what is predicted with under it


class State(NamedTuple):
    """The clients' models, the server's mixture, and what solvers remember."""

    models: Rows  # of every client, [num_clients] trees
    model: Model
    memory: Memory  # of the clients' solvers
    own: Memory  # of the server's
    best: Chosen  # of the server's mixtures: what of `Model` predicts
    log: round_log.Log


@dataclass(frozen=True, kw_only=True)
class FedMoE(TrainedMixture):
    """A mixture of experts on the server, which clients train in weight space.

    Attributes:
      local: solver of the clients.
      confidence: in a label, "prob", or "logit" (code, CIFAR-10).
      relevance_reduce, sync_reduce: of products over the probe, for W^r and W^c: "sum" or "mean".
      sync_weights: W^c, see `relevance.sync_weights`; with "none" clients keep what they trained.
      lam: lambda: how far experts go towards clients' models, and how much of its own a client
        keeps. 1 replaces experts and leaves clients alone.
      main_lam, client_lam: instead of `lam`, for main experts and for clients; None is `lam`.
      start: what a client of the cohort trains from: its "own" model (Algorithm 1), which is as old
        as its last round; or the "main" expert as it is now, the mean of several, which takes the
        place of synchronisation.
      query: the gate Q with which relevance is measured: "soft", the probabilities of all experts
        (Equation 4), or "kept", the values of those that inference keeps (code).
      inner_steps: T of Algorithm 1.
      gate_training: in every "inner" step (paper), or once "before" the first round (code).
      init_experts: clients and experts begin as one "shared" draw, or as "independent" ones (code).
      probe: whose training examples relevance is measured on: the "server" (paper: one reserved
        set), or the "probe" (code).
      log_rounds: after which rounds gate, alpha and weights are written down, ascending, from 1.
    """

    local: Solver
    confidence: str = "prob"
    relevance_reduce: str = "sum"
    sync_reduce: str = "sum"
    sync_weights: str = "code"
    lam: float = 0.1
    main_lam: float | None = None
    client_lam: float | None = None
    start: str = "own"
    query: str = "soft"
    inner_steps: int = 1
    gate_training: str = "inner"
    init_experts: str = "shared"
    probe: str = "server"
    log_rounds: tuple[int, ...] = ()

    choices: ClassVar = TrainedMixture.choices | {
        "confidence": ("prob", "logit"),
        "relevance_reduce": relevance.REDUCTIONS,
        "sync_reduce": relevance.REDUCTIONS,
        "sync_weights": (*relevance.SYNC_WEIGHTS, "none"),
        "start": ("own", "main"),
        "query": ("soft", "kept"),
        "gate_training": ("inner", "before"),
        "init_experts": ("shared", "independent"),
        "probe": ("server", "probe"),
    }
    ranges: ClassVar = TrainedMixture.ranges | {
        "inner_steps": Range(1),
        **dict.fromkeys(("lam", "main_lam", "client_lam"), Range(0, 1)),
    }
    SPACE: ClassVar = TrainedMixture.SPACE | {"alpha": Uniform(0, 1)}
    final_protocols: ClassVar = TrainedMixture.final_protocols | {"seen": {OWN: "own_models"}}

    def __post_init__(self):
        """Raises ValueError for settings that mean nothing."""
        # Before the first round nobody has looked at the probe.
        object.__setattr__(self, "log_rounds", tables.checked_rounds(self.log_rounds, first=1))
        TrainedMixture.__post_init__(self)
        if self.start == "main" and not (self.num_main and self.sync_weights == "none"):
            raise ValueError(
                "start 'main' needs a main expert and takes the place of synchronisation: num_main "
                f"must be at least 1, got {self.num_main}, and sync_weights 'none', got "
                f"{self.sync_weights!r}"
            )

    def init(self, num_clients: int, seed: int) -> State:
        """One draw for everybody, or one for each; gate and noise network have their own."""
        draws = 1 + self.num_routed + self.num_main + num_clients
        keys = streams.keys(draws, seed, "fedmoe").tolist()
        ours = self.task.init(seed)
        shared = self.init_experts == "shared"
        drawn = [ours if shared else self.task.init(key) for key in keys[1:]]
        routed, rest = drawn[: self.num_routed], drawn[self.num_routed :]
        main, models = rest[: self.num_main], rest[self.num_main :]
        model = self.assembled(tree.stack(routed), tree.stack(main) if main else {}, seed, keys[0])
        trained = self.mixture_task.trainable(self.trained_part(model))
        num_labels = max(2, self.task.num_outputs)  # one logit is of two labels
        sizes = len(self.log_rounds), num_clients, num_labels, self.num_routed
        return State(
            drawn_in_turn(models, num_clients),
            model,
            self.local.memory(self.task.trainable(ours), num_clients),
            self.server.memory(trained, num_clients),
            chosen.start({name: model[name] for name in PREDICTS}),
            round_log.start(*sizes, bool(self.num_main), model["alpha"]),
        )

    # -- Algorithm 1 -------------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Clients train; the server moves its experts, trains its gate, synchronises clients."""
        if self.warm_start:
            state = self.begun(state, cohort)
        start = self.starts(state, cohort)
        # All models at once: relevance compares them on the probe before they are mixed.
        trained, memory = cohort.fit(self.task.loss, start, local=self.local, memory=state.memory)
        trained = cohort.collect(trained)  # stage A

        server, probe = cohort.everyone("server"), cohort.everyone(self.probe)
        sure = self.confidences(trained, probe)
        model, own, best = state.model, state.own, state.best
        if self.gate_training == "before" and cohort.round == 0:
            model, own = self.train_gate(model, own, server, "server/before")
        for t in range(self.inner_steps):  # stage B
            found = relevance.relevance(self.queried(model, probe), sure, self.relevance_reduce)
            weights = self.client_weights(found)
            model = self.moved(model, trained, weights)
            if self.main_solver and self.num_main:
                model = self.train_main(model, server, f"main/{t}")
            if self.gate_training == "inner":
                model, own = self.train_gate(model, own, server, f"server/{t}")
            best = self.renewed(best, model, server)

        query = self.queried(model, probe)  # stage C
        found = relevance.relevance(query, sure, self.sync_reduce)
        synced, shares = self.synchronised(trained, model, found)
        if shares is not None:
            synced = cohort.scatter(synced)
        models = cohort.put(state.models, synced)
        log = state.log
        if cohort.round + 1 in self.log_rounds:
            row = self.log_rounds.index(cohort.round + 1)
            log = round_log.noted(log, row, probe, cohort, query, model["alpha"], weights, shares)
        return State(models, model, memory, own, best, log)

    def starts(self, state: State, cohort: Cohort) -> Rows:
        """What each client of the cohort trains from; its own model is there already."""
        if self.start == "own":
            return tree.take(state.models, cohort.host_ids)
        main = tree.map(lambda x: x.mean(0), state.model["main"])
        return Rows(tree.unstack(cohort.broadcast(main)))

    def confidences(self, trained: Rows, probe: Cohort) -> Tensor:
        """P_y, how sure each client's model is of the probe's labels -> [C, N]"""
        models = [tree.broadcast(own, 1) for own in trained]
        return torch.cat([probe.score(self.certainty, own) for own in models])

    def certainty(self, params: Params, batch: Batch) -> Tensor:
        """Of a model in the labels of a batch -> [B]"""
        if self.confidence == "prob":
            return (-nll(self.task.log_probs(params, batch), batch.y)).exp()
        logits = self.task.logits(params, batch)
        both = torch.cat([-logits, logits], -1) if logits.shape[-1] == 1 else logits
        return -nll(both, batch.y)

    def queried(self, model: Model, probe: Cohort) -> Tensor:
        """Q, what the gate makes of the probe -> [N, K]"""
        gates = self.soft_gates if self.query == "soft" else self.gates
        return probe.score(gates, tree.broadcast(model["gate"], 1))[0]

    def client_weights(self, found: Tensor) -> Tensor:
        """W^r from relevance [K, C] -> [K, C]"""
        return relevance.client_weights(found)

    def moved(self, model: Model, trained: Rows, weights: Tensor) -> Model:
        """Experts go towards what clients trained, by weights [K, C] (Equation 6)."""
        routed = relevance.moved_towards(model["routed"], tree.combine(trained, weights), self.lam)
        mean = tree.mean(trained, torch.ones_like(weights[0]))
        lam = self.lam if self.main_lam is None else self.main_lam
        everywhere = tree.broadcast(mean, self.num_main) if self.num_main else {}
        return model | {
            "routed": routed,
            "main": relevance.moved_towards(model["main"], everywhere, lam),
        }

    def synchronised(
        self, trained: Rows, model: Model, found: Tensor
    ) -> tuple[Rows, Tensor | None]:
        """Clients' models, of which each has its share of the experts; and W^c (Equation 13).

        Several main experts share the row of one.
        """
        if self.sync_weights == "none":
            return trained, None
        main = self.num_main > 0
        shares = relevance.sync_weights(found, model["alpha"], self.sync_weights, main)
        experts = model["routed"]
        if main:
            mean = tree.map(lambda x: x.mean(0, keepdim=True), model["main"])
            experts = tree.concatenate([experts, mean])
        lam = self.lam if self.client_lam is None else self.client_lam
        rows = [
            relevance.moved_towards(tree.combine(experts, shares[:, j]), tree.take(trained, j), lam)
            for j in range(shares.shape[1])
        ]
        return Rows(rows), shares

    def begun(self, state: State, cohort: Cohort) -> State:
        """Everybody has the expert that the server trained first; newcomers are sent it."""
        if cohort.round == 0:
            warm, model = self.warmed(state.model, cohort.everyone("server"))
            own = tree.map(lambda old, new: new.to(old), state.models[0], warm)
            state = state._replace(models=Rows([own] * len(state.models)), model=model)
        if self.start == "own":
            news = zip(cohort.host_ids, never_trained(state.memory, cohort), strict=True)
            cohort.scatter(Rows(state.models[client] if new else {} for client, new in news))
        return state

    # -- evaluation --------------------------------------------------------------------------

    def own_models(self, state: State, cohort: Cohort) -> dict[str, Rows]:
        """Of each client its own model, as training left it."""
        return {OWN: tree.take(state.models, cohort.host_ids)}

    def predict(self, personal: Model | dict[str, Params], batch: Batch) -> Tensor:
        """Log-probabilities of a mixture, or of ONE client's own model -> [B, L]"""
        if OWN in personal:
            return self.task.log_probs(personal[OWN], batch)
        return TrainedMixture.predict(self, personal, batch)

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """What was written down, after which rounds; and which mixture was chosen.

        Rounds that never came are left out.
        """
        return round_log.diagnostics(state.log, self.log_rounds) | state.best.diagnostics()
