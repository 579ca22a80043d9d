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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib import streams, tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import each_expert
from fedlib.engine.solvers import Memory, Solver, from_spec
from fedlib.engine.task import Batch, Params, nll
from fedlib.methods.base import Method, Range
from fedlib.methods.gated_mixture import PREDICTS, GatedMixture, Model
from fedlib.methods.parts import chosen, relevance, server_mixture, tables
from fedlib.methods.parts.chosen import Chosen
from fedlib.methods.parts.own_models import drawn_in_turn, never_trained
from fedlib.tree import Rows

OWN = "own"  # protocol, and what is predicted with under it


class Log(NamedTuple):
    """What happened in each of `log_rounds`, 0 before; clients who were absent have 0."""

    tables: Tensor  # [S, L, K] mean gate weights by class, on the probe
    table_alphas: Tensor  # [S] alpha
    client_weights: Tensor  # [S, num_clients, K] transposed W^r, of the last inner step
    sync_weights: Tensor  # [S, num_clients, K + 1] transposed W^c; [..., K] without main experts


class State(NamedTuple):
    """The clients' models, the server's mixture, and what solvers remember."""

    models: Rows  # of every client, [num_clients] trees
    model: Model
    memory: Memory  # of the clients' solvers
    own: Memory  # of the server's
    best: Chosen  # of the server's mixtures: what of `Model` predicts
    log: Log


@dataclass(frozen=True, kw_only=True)
class FedMoE(GatedMixture):
    """A mixture of experts on the server, which clients train in weight space.

    Attributes:
      local: solver of the clients.
      server: solver of what the server trains, or its specification as `Run.local` has it.
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
      noise_lr_scale, alpha_lr_scale, routed_lr_scale, main_lr_scale: factors of the server's rate;
        0 trains nothing. The paper's experts are not trained on the server.
      main_solver: of main experts, alone on the server's examples after every move (code,
        CIFAR-10); None is not at all.
      warm_start: of one expert, the first main one if there is any, on the server's examples before
        the first round: all experts and clients then begin with it. None is not at all.
      init_experts: clients and experts begin as one "shared" draw, or as "independent" ones (code).
      keep: what the server predicts with: its "best" mixture on validation examples, or the "last".
      probe: whose training examples relevance is measured on: the "server" (paper: one reserved
        set), or the "probe" (code).
      log_rounds: after which rounds gate, alpha and weights are written down, ascending, from 1.
    """

    local: Solver
    server: Solver | Mapping
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
    noise_lr_scale: float = 1.0
    alpha_lr_scale: float = 1.0
    routed_lr_scale: float = 0.0
    main_lr_scale: float = 0.0
    main_solver: Solver | Mapping | None = None
    warm_start: Solver | Mapping | None = None
    init_experts: str = "shared"
    keep: str = "best"
    probe: str = "server"
    log_rounds: tuple[int, ...] = ()

    choices: ClassVar = GatedMixture.choices | {
        "confidence": ("prob", "logit"),
        "relevance_reduce": relevance.REDUCTIONS,
        "sync_reduce": relevance.REDUCTIONS,
        "sync_weights": (*relevance.SYNC_WEIGHTS, "none"),
        "start": ("own", "main"),
        "query": ("soft", "kept"),
        "gate_training": ("inner", "before"),
        "init_experts": ("shared", "independent"),
        "keep": ("best", "last"),
        "probe": ("server", "probe"),
    }
    ranges: ClassVar = GatedMixture.ranges | {
        "inner_steps": Range(1),
        **dict.fromkeys(("lam", "main_lam", "client_lam"), Range(0, 1)),
        **{f"{name}_lr_scale": Range(0) for name in ("noise", "alpha", "routed", "main")},
    }
    protocols: ClassVar = {**Method.protocols, "server": {"default": "personalise"}}
    final_protocols: ClassVar = {
        **Method.final_protocols,
        "seen": {OWN: "own_models"},
        "server": {"last": "last_mixture"},
    }

    def __post_init__(self):
        """Raises ValueError for settings that mean nothing."""
        # Before the first round nobody has looked at the probe.
        object.__setattr__(self, "log_rounds", tables.checked_rounds(self.log_rounds, first=1))
        for name in ("server", "main_solver", "warm_start"):
            if isinstance(spec := getattr(self, name), Mapping):
                object.__setattr__(self, name, from_spec(dict(spec)))
        GatedMixture.__post_init__(self)
        if self.start == "main" and not (self.num_main and self.sync_weights == "none"):
            raise ValueError(
                "start 'main' needs a main expert and takes the place of synchronisation: num_main "
                f"must be at least 1, got {self.num_main}, and sync_weights 'none', got "
                f"{self.sync_weights!r}"
            )

    @property
    def trains_experts(self) -> bool:
        """Whether the gate's training moves experts too."""
        return self.routed_lr_scale > 0 or self.main_lr_scale > 0

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
        return State(
            drawn_in_turn(models, num_clients),
            model,
            self.local.memory(self.task.trainable(ours), num_clients),
            self.server.memory(trained, num_clients),
            chosen.start({name: model[name] for name in PREDICTS}),
            self.empty_log(num_clients, model["alpha"]),
        )

    # -- Algorithm 1 -------------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Clients train; the server moves its experts, trains its gate, synchronises clients."""
        if self.warm_start:
            state = self.begun(state, cohort)
        start = self.starts(state, cohort)
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
        models = tree.put(state.models, cohort.host_ids, synced)
        log = self.logged(state.log, query, model, weights, shares, cohort)
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

    def renewed(self, best: Chosen, model: Model, server: Cohort) -> Chosen:
        """The best mixture so far by its loss on the server's validation examples, or the last."""
        loss = self.validation_loss(model, server)
        mixture = {name: model[name] for name in PREDICTS}
        if self.keep == "best":
            return best.renewed(mixture, loss, server.round + 1)
        number = torch.full_like(best.round, server.round + 1)
        return best._replace(params=tree.clone(mixture), loss=loss.to(best.loss), round=number)

    # -- the server trains -------------------------------------------------------------------

    def train_gate(
        self, model: Model, own: Memory, server: Cohort, stream: str
    ) -> tuple[Model, Memory]:
        """Gate, noise network and alpha, with the experts as they are or along with them."""
        known = () if self.trains_experts else (self.said_by_all(model, server, "train"),)
        scales = {name: getattr(self, f"{name}_lr_scale") for name in ("noise", "alpha")}
        scales |= {"routed": self.routed_lr_scale, "main": self.main_lr_scale}
        trained, own = replace(server, task=self.mixture_task).fit(
            self.joint_loss if self.trains_experts else self.gate_loss,
            tree.broadcast(self.trained_part(model), 1),
            *known,
            local=self.server,
            memory=own,
            lr_scale=scales,
            stream=stream,
        )
        return model | tree.take(trained, 0), own

    def begun(self, state: State, cohort: Cohort) -> State:
        """Everybody has the expert that the server trained first; newcomers are sent it."""
        if cohort.round == 0:
            server = cohort.everyone("server")
            first = tree.map(lambda x: x[:1], state.model["main"] or state.model["routed"])
            start = tree.broadcast(first, 1)
            warm, _ = server.fit(self.main_loss, start, local=self.warm_start, stream="server/warm")
            warm = tree.take(tree.take(warm, 0), 0)
            experts = {"routed": tree.repeat(warm, self.num_routed)}
            experts["main"] = tree.repeat(warm, self.num_main) if self.num_main else {}
            own = tree.map(lambda old, new: new.to(old), state.models[0], warm)
            models = Rows([own] * len(state.models))
            state = state._replace(models=models, model=state.model | experts)
        if self.start == "own":
            news = zip(cohort.host_ids, never_trained(state.memory, cohort), strict=True)
            cohort.scatter(Rows(state.models[client] if new else {} for client, new in news))
        return state

    def train_main(self, model: Model, server: Cohort, stream: str) -> Model:
        """Main experts alone, with a new solver."""
        main = tree.broadcast(model["main"], 1)
        main, _ = server.fit(self.main_loss, main, local=self.main_solver, stream=stream)
        return model | {"main": tree.take(main, 0)}

    def main_loss(self, main: Params, batch: Batch) -> Tensor:
        """Losses of all main experts together -> []"""
        losses = each_expert(lambda expert: self.task.losses(expert, batch), main)
        return batch.mean(losses.sum(1))

    def personalise(self, state: State, cohort: Cohort) -> Model:
        """The server's mixture, for everybody."""
        return cohort.broadcast(state.best.params)

    def last_mixture(self, state: State, cohort: Cohort) -> Model:
        """The mixture of the last round, whichever was chosen."""
        return cohort.broadcast({name: state.model[name] for name in PREDICTS})

    def own_models(self, state: State, cohort: Cohort) -> dict[str, Rows]:
        """Of each client its own model, as training left it."""
        return {OWN: tree.take(state.models, cohort.host_ids)}

    def predict(self, personal: Model | dict[str, Params], batch: Batch) -> Tensor:
        """Log-probabilities of a mixture, or of ONE client's own model -> [B, L]"""
        if OWN in personal:
            return self.task.log_probs(personal[OWN], batch)
        return GatedMixture.predict(self, personal, batch)

    # -- what is written down ----------------------------------------------------------------

    def empty_log(self, num_clients: int, like: Tensor) -> Log:
        """Before the first round."""
        rounds, experts = len(self.log_rounds), self.num_routed
        num_labels = max(2, self.task.num_outputs)  # one logit is of two labels
        return Log(
            like.new_zeros(rounds, num_labels, experts),
            like.new_zeros(rounds),
            like.new_zeros(rounds, num_clients, experts),
            like.new_zeros(rounds, num_clients, experts + (self.num_main > 0)),
        )

    def logged(
        self, log: Log, query: Tensor, model: Model, weights: Tensor, shares: Tensor | None,
        cohort: Cohort,
    ) -> Log:  # fmt: skip
        """`log` with this round, if it is one of `log_rounds`."""
        if cohort.round + 1 not in self.log_rounds:
            return log
        row, log = self.log_rounds.index(cohort.round + 1), tree.clone(log)
        probe, data = cohort.everyone(self.probe).host_ids[0], cohort.data
        y = data.y[data.owned("train", int(probe))]
        num_labels = log.tables.shape[1]
        mass = server_mixture.class_mass(query, y, num_labels).T
        count = torch.bincount(y.long(), minlength=num_labels).clamp(min=1)
        log.tables[row] = mass / count[:, None]
        log.table_alphas[row] = model["alpha"]
        log.client_weights[row, cohort.ids] = weights.T
        if shares is not None:
            log.sync_weights[row, cohort.ids] = shares.T
        return log

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """What was written down, after which rounds; and which mixture was chosen.

        Rounds that never came are left out.
        """
        reached = state.log.tables.sum((1, 2)) > 0
        rounds = torch.tensor(self.log_rounds, device=reached.device)
        written = {name: value[reached] for name, value in state.log._asdict().items()}
        return written | {"table_rounds": rounds[reached]} | state.best.diagnostics()
