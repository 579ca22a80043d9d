"""Fed-MoE: compact models on clients, and a mixture of experts made of them on the server.

    A  clients  train their own models M_j
    B  server   T times: R_ij, relevance of client j for expert i: the gate G's weight of expert i
                times the confidence of M_j in the true label, summed over the probe's examples
                W^r, the softmax of R over clients
                E_0 <- (1 - lam) E_0 + lam mean_j M_j
                E_i <- (1 - lam) E_i + lam sum_j W^r_ij M_j
                train G and alpha on the server's own examples
    C  server   W^c, the weights of experts in each client's update
                M_j <- lam M_j + (1 - lam) sum_i W^c_ij E_i

The server's prediction for all clients is y = (1 - alpha) E_0(x) + alpha sum_i G_i(x) E_i(x). It
keeps a copy of its mixture with the lowest loss on its validation examples.

Source: Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025 (doi 10.24963/ijcai.2025/610), Algorithm 1, Equations 1 to 13.
Official code: FancyAI-SCNU/FedMoE_IJCAI_2025, which differs from the paper in many points; "(code)"
marks them. Section 3.1 of fedlib/papers/fedmoe/README.md has its values of all settings.
Deviation: experts that the server does not train predict in evaluation mode, one at a time, once
after each update; the training of the gate uses these outputs. Batch normalisation has no integer
counters here, so all entries of a model can be averaged.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partialmethod
from itertools import islice
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib import streams, tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params, nll
from fedlib.methods.base import Range, Uniform
from fedlib.methods.gated_mixture import Model, predictor
from fedlib.methods.parts import chosen, relevance, server_mixture, tables
from fedlib.methods.parts.chosen import Chosen
from fedlib.methods.parts.own_models import is_untrained, place_in_turn
from fedlib.methods.trained_mixture import TrainedMixture
from fedlib.tree import Rows

OWN = "own"  # name of the protocol, and key of its models
TOPS = (2, 3, 5)  # experts that may be kept at inference besides `top_k`: Table 6


class Log(NamedTuple):
    """What is recorded after each of `log_rounds`; 0 before."""

    tables: Tensor  # [S, L, K] mean gate weights by class, on the probe
    table_alphas: Tensor  # [S] alpha


class State(NamedTuple):
    """The clients' models, the server's mixture, and the memory of the solvers."""

    models: Rows  # of every client, [num_clients] trees
    model: Model
    memory: Memory  # of the clients' solvers
    own: Memory  # of the server's solver
    best: Chosen  # the server's best mixture: the entries of `Model` that predict
    log: Log
    others: dict[str, Chosen]  # likewise, by the names of `top`, for those that keep more experts


@dataclass(frozen=True, kw_only=True)
class FedMoE(TrainedMixture):
    """A mixture of experts on the server, whose experts are averages of clients' models.

    Attributes:
      local: solver of the clients.
      num_main: as in `GatedMixture`; the paper has 1 (Table 8).
      confidence: confidence in a label: its probability ("prob"), or its "logit" (code, CIFAR-10).
      relevance_reduce, sync_reduce: "sum" (code) or "mean" over the probe in R, for W^r and W^c.
      sync_weights: W^c, see `relevance.sync_weights`; with "none" clients keep their trained models
        (Table 4).
      lam: the paper's lambda, in [0, 1]: step of the experts towards clients' models, and share
        that a client keeps of its own model. 1 replaces experts and does not change clients. The
        paper gives no value; 0.1 is the code's.
      main_lam, client_lam: in place of `lam` for main experts and for clients, in [0, 1]; None is
        `lam`.
      start: model from which a client trains: its "own" (Algorithm 1), which is as old as its last
        round; or the current "main" expert, or the mean of several, in place of synchronisation
        (ours).
      query: gate values Q for relevance: "soft", the probabilities of all experts (Equation 4), or
        "kept", the values at inference (code).
      inner_steps: T of Algorithm 1, at least 1; 5 on CIFAR-10, else 1, in the code.
      gate_training: in every "inner" step (paper), or once "before" the first round (code).
      init_experts: clients and experts start from one "shared" draw, or from "independent" draws
        (code).
      probe: owner of the examples on which relevance is measured: the "server" (paper: one reserved
        set), or the "probe" (code).
      log_rounds: rounds after which gate and alpha are recorded, ascending, from 1.
      also_top: numbers of experts, of `TOPS`, that inference also keeps, in protocols of the server
        such as "top_2" (and "last_top_2", of the last round). Each chooses its own mixture, so one
        training has the results of several with another `top_k`.
    """

    num_main: int = 1
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
    also_top: tuple[int, ...] = ()

    look = "Fed-MoE", "#B8336A", (9, 1, 0), "solid", 2.1
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

    def __post_init__(self):
        """Raises ValueError for invalid settings."""
        TrainedMixture.__post_init__(self)
        # From 1, as relevance is first measured in the first round.
        tables.check_rounds(self.log_rounds, first=1)
        if self.start == "main" and not (self.num_main and self.sync_weights == "none"):
            raise ValueError(
                "start 'main' needs a main expert and takes the place of synchronisation: num_main "
                f"must be at least 1, got {self.num_main}, and sync_weights 'none', got "
                f"{self.sync_weights!r}"
            )
        if not {*self.also_top} <= {k for k in TOPS if k <= self.num_routed} - {self.top_k}:
            raise ValueError(
                f"also_top must be of {TOPS}, at most the {self.num_routed} experts, and not "
                f"top_k, {self.top_k}; got {self.also_top}"
            )
        if self.also_top and (self.training_gate, self.query) != ("soft", "soft"):
            raise ValueError(
                "also_top needs a training that does not depend on top_k: training_gate and query "
                f"must be 'soft', got {self.training_gate!r} and {self.query!r}"
            )

    @property
    def final_protocols(self) -> dict[str, dict[str, str]]:
        """Clients' own models; the server's mixture of the last round, and those of `also_top`."""
        server = {"last": "last_mixture"}
        for name in self.top:
            server |= {name: name, f"last_{name}": f"last_{name}"}
        return {"seen": {OWN: "own_models"}, "unseen": {}, "server": server}

    @cached_property
    def top(self) -> "dict[str, FedMoE]":
        """This method with another `top_k`, for each of `also_top`, by the protocol's name."""
        return {f"top_{k}": replace(self, top_k=k, also_top=()) for k in self.also_top}

    def init(self, num_clients: int, seed: int) -> State:
        """One draw for all clients and experts, or one for each; gate and noise have their own."""
        draws = 1 + self.num_routed + self.num_main + num_clients
        noise_seed, *keys = streams.keys(draws, seed, "fedmoe").tolist()
        ours = self.task.init(seed)
        shared = self.init_experts == "shared"
        drawn = iter([ours if shared else self.task.init(key) for key in keys])
        routed, main = ([*islice(drawn, count)] for count in (self.num_routed, self.num_main))
        stacked = tree.stack(routed), tree.stack(main) if main else {}
        model = self.assemble(*stacked, seed, noise_seed)
        trained = self.mixture_task.trainable(self.trained_part(model))
        number, rows, labels = model["alpha"], len(self.log_rounds), self.task.num_labels
        best = chosen.start(predictor(model))
        return State(
            models=place_in_turn([*drawn], num_clients),  # those that are left
            model=model,
            memory=self.local.memory(self.task.trainable(ours), num_clients),
            own=self.server.memory(trained, num_clients),
            best=best,
            log=Log(number.new_zeros(rows, labels, self.num_routed), number.new_zeros(rows)),
            others=dict.fromkeys(self.top, best),
        )

    # -- Algorithm 1 -------------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Clients train; the server updates experts, trains its gate and synchronises clients."""
        if self.warm_start:
            state = self.start_warm(state, cohort)
        start = self.starts(state, cohort)
        # All models at once, as relevance needs each client's model.
        trained, memory = cohort.fit(self.task.loss, start, local=self.local, memory=state.memory)
        trained = cohort.collect(trained)  # stage A

        server, probe = cohort.everyone("server"), cohort.everyone(self.probe)
        sure = self.confidences(trained, probe)
        model, own, best, others = state.model, state.own, state.best, state.others
        if self.gate_training == "before" and cohort.round == 0:
            model, own = self.train_gate(model, own, server, "server/before")
        for t in range(self.inner_steps):  # stage B
            found = relevance.relevance(self.query_gates(model, probe), sure, self.relevance_reduce)
            model = self.update_experts(model, trained, self.client_weights(found))
            if self.main_solver and self.num_main:
                model = self.train_main(model, server, f"main/{t}")
            if self.gate_training == "inner":
                model, own = self.train_gate(model, own, server, f"server/{t}")
            outputs = self.validation_outputs(model, server)
            best = self.choose(best, model, outputs, server)
            others = {k: x.choose(others[k], model, outputs, server) for k, x in self.top.items()}

        query = self.query_gates(model, probe)  # stage C
        found = relevance.relevance(query, sure, self.sync_reduce)
        if self.sync_weights != "none":
            trained = cohort.scatter(self.synchronise(trained, model, found))
        models = cohort.put(state.models, trained)
        log = self.record(state.log, model, query, probe)
        return State(models, model, memory, own, best, log, others)

    def starts(self, state: State, cohort: Cohort) -> Rows:
        """The models from which the cohort trains; only main experts are counted as traffic."""
        if self.start == "own":
            return tree.take(state.models, cohort.host_ids)
        main = tree.map(lambda x: x.mean(0), state.model["main"])
        return Rows(tree.unstack(cohort.broadcast(main)))

    def confidences(self, trained: Rows, probe: Cohort) -> Tensor:
        """P_y, the confidence of each client's model in the probe's labels -> [C, N]"""
        models = [tree.broadcast(own, 1) for own in trained]
        return torch.cat([probe.score(self.certainty, own) for own in models])

    def certainty(self, params: Params, batch: Batch) -> Tensor:
        """Confidence of a model in the labels of a batch -> [B]"""
        if self.confidence == "prob":
            return (-nll(self.task.log_probs(params, batch), batch.y)).exp()
        logits = self.task.logits(params, batch)
        both = torch.cat([-logits, logits], -1) if logits.shape[-1] == 1 else logits
        return -nll(both, batch.y)

    def query_gates(self, model: Model, probe: Cohort) -> Tensor:
        """Q, the gate values of the probe's examples -> [N, K]"""
        gates = self.soft_gates if self.query == "soft" else self.gates
        return probe.score(gates, tree.broadcast(model["gate"], 1))[0]

    def client_weights(self, found: Tensor) -> Tensor:
        """W^r, the clients' weights in each expert's update, from the relevance [K, C] -> [K, C]

        Equation 5; rows sum to 1. An expert that the gate never uses has uniform weights.
        """
        return found.softmax(1)

    def update_experts(self, model: Model, trained: Rows, weights: Tensor) -> Model:
        """The experts' update with W^r [K, C] (Equation 6)."""
        routed = relevance.move_towards(model["routed"], tree.combine(trained, weights), self.lam)
        mean = tree.mean(trained, torch.ones_like(weights[0]))
        lam = self.lam if self.main_lam is None else self.main_lam
        everywhere = tree.broadcast(mean, self.num_main) if self.num_main else {}
        main = relevance.move_towards(model["main"], everywhere, lam)
        return model | {"routed": routed, "main": main}

    def synchronise(self, trained: Rows, model: Model, found: Tensor) -> Rows:
        """The clients' models after their update with W^c (Equation 13).

        Several main experts count as one, by their mean.
        """
        main = self.num_main > 0
        shares = relevance.sync_weights(found, model["alpha"], self.sync_weights, main)
        experts = model["routed"]
        if main:
            mean = tree.map(lambda x: x.mean(0, keepdim=True), model["main"])
            experts = tree.concatenate([experts, mean])
        lam = self.lam if self.client_lam is None else self.client_lam
        return Rows(
            relevance.move_towards(tree.combine(experts, shares[:, j]), tree.take(trained, j), lam)
            for j in range(shares.shape[1])
        )

    def record(self, log: Log, model: Model, query: Tensor, probe: Cohort) -> Log:
        """`log` with gate and alpha, if this is one of `log_rounds`; `query` [N, K] is Q."""
        data, after = probe.data, (self.log_rounds, probe.round + 1)

        def by_class() -> Tensor:
            y = data.y[data.rows_of("train", int(probe.host_ids[0]))]
            mass = server_mixture.class_mass(query, y, self.task.num_labels).T
            count = torch.bincount(y.long(), minlength=self.task.num_labels).clamp(min=1)
            return mass / count[:, None]

        return Log(
            tables.record(log.tables, *after, by_class),
            tables.record(log.table_alphas, *after, lambda: model["alpha"]),
        )

    def start_warm(self, state: State, cohort: Cohort) -> State:
        """The warm start: all have the expert that the server trained; new clients download it."""
        if cohort.round == 0:
            warm, model = self.warm_up(state.model, cohort.everyone("server"))
            own = tree.map(lambda old, new: new.to(old), state.models[0], warm)
            state = state._replace(models=Rows([own] * len(state.models)), model=model)
        if self.start == "own":
            news = zip(cohort.host_ids, is_untrained(state.memory, cohort), strict=True)
            cohort.scatter(Rows(state.models[client] if new else {} for client, new in news))
        return state

    # -- evaluation --------------------------------------------------------------------------

    def own_models(self, state: State, cohort: Cohort) -> dict[str, Rows]:
        """Each client's own model."""
        return {OWN: tree.take(state.models, cohort.host_ids)}

    def best_top(self, state: State, cohort: Cohort, name: str) -> dict[str, Model]:
        """The mixture chosen for one of `top`."""
        return {name: cohort.broadcast(state.others[name].params)}

    def last_top(self, state: State, cohort: Cohort, name: str) -> dict[str, Model]:
        """The mixture of the last round, for one of `top`."""
        return {name: self.last_mixture(state, cohort)}

    # As their names are those of functions, see `Method.protocols`.
    top_2 = partialmethod(best_top, name="top_2")
    top_3 = partialmethod(best_top, name="top_3")
    top_5 = partialmethod(best_top, name="top_5")
    last_top_2 = partialmethod(last_top, name="top_2")
    last_top_3 = partialmethod(last_top, name="top_3")
    last_top_5 = partialmethod(last_top, name="top_5")

    def predict(self, personal: Model | dict[str, Params | Model], batch: Batch) -> Tensor:
        """Log-probabilities of a mixture, or of ONE client's own model -> [B, L]"""
        if OWN in personal:
            return self.task.log_probs(personal[OWN], batch)
        if len(personal) == 1:
            [(name, mixture)] = personal.items()
            return self.top[name].predict(mixture, batch)
        return TrainedMixture.predict(self, personal, batch)

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """The log, for the rounds reached, and which mixture was chosen."""
        return tables.diagnostics(self.log_rounds, **state.log._asdict()) | state.best.diagnostics()
