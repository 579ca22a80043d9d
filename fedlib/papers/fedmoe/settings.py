"""The runs of Fed-MoE, made from a federation's settings.

The paper is Jiang et al., IJCAI 2025 (doi 10.24963/ijcai.2025/610); sections are those of
README.md. All methods on a federation have the same rounds, cohorts and clients' solvers, those of
`presets`.
"""

from dataclasses import dataclass, field

from fedlib.papers import _frame
from fedlib.papers.fedmoe.presets import SETTINGS, fedmoe
from fedlib.spec import Run

MU = 0.01  # of FedProx; ours, the paper has none
WARM_EPOCHS = 1  # of the expert from which all experts start (section 4.4)
AVG_EXPERTS = 2  # of Avg-MoE, "FedMix (2-Exp)" (section 0)
LOGS = 20  # rounds in which the gate and alpha are logged, at most, besides the first; ours
UNGATED = ("ensemble", "fedavg", "fedprox", "server_finetuning")  # methods
UNUSED = "trains on none of the server's data"
CHOOSES = "of its states, the one of least loss on the server's validation examples predicts"
NOTES = {  # by label
    "fedmoe": (f"trains gate and alpha, and measures relevance, on the server's data; {CHOOSES}",),
    "fedavg": (UNUSED,),
    "fedprox": (UNUSED, f"μ = {MU:g} is ours"),
    "centmoe": (f"trains on the server's data alone, without any client; {CHOOSES}",),
    "avg-moe": (UNUSED, "the paper's FedMix (2-Exp), which is not the variational FedMix"),
    "fedjets": (
        UNUSED,
        "the paper's Anchor-MoE; an anchor per expert takes part in every round, besides as "
        "many other clients as the other methods have",
    ),
    "fedrolex": (UNUSED, "the server's network is twice as wide; ours"),
    "ensemble": (UNUSED, "the mean of the predictions of clients' own models; ours"),
    "server-finetuning": (f"ours; trains a copy on the server's data in every round; {CHOOSES}",),
    "uniform-mixture": ("Fed-MoE with equal weights Wʳ; ours",),
    "fedmoe-fresh": ("clients train from the main expert, not from their own models; ours",),
}


@dataclass(frozen=True)
class Variant(_frame.Variant):
    """The meaning of a label; `params` are those that differ from the federation's.

    Attributes:
      experts: number of experts; None for the federation's.
      preset: of `presets`.
      warm_epochs: of one expert on the server's examples with the clients' solver, before training.
    """

    experts: int | None = None
    preset: str = "paper"
    warm_epochs: int = 0


def _fedmoe(title: str, experts: int | None = None, preset: str = "paper", **params) -> Variant:
    return Variant(f"Fed-MoE, {title}", "fedmoe", params, experts, preset)


ABLATED = 50  # clients of the paper's Tables 3 to 8, section 5.3 and Figure 4
BETAS = {"1e-4": 1e-4, "1e-2": 1e-2, "1e-1": 1e-1}  # Table 5, besides 0 and 1e-3
EXPERTS = (10, 20, 30)  # Table 3, besides the usual ones
FEWER = (1, 3)  # experts, beside Table 3; ours (section 5)
LAMBDAS = (0.05, 0.1, 0.3, 0.5, 1)  # ours (section 5); the paper only says that it is in (0, 1)
BALANCED = {"query": "kept", "balance_weight": 1.0}  # of the code on FEMNIST
KEPT = {f"fedmoe-top-{num}": num for num in (2, 3, 5)}  # Table 6, besides 1: published labels
MAINS = (0, 2, 3)  # Table 8, besides 1
NO_ENTROPY, NO_SYNC = {"entropy_weight": 0.0}, {"sync_weights": "none"}

VARIANTS = {
    "fedmoe": Variant("Fed-MoE", "fedmoe"),
    "fedavg": Variant("FedAvg", "fedavg"),
    "fedprox": Variant("FedProx", "fedprox", {"mu": MU}),
    "centmoe": Variant("CentMoE", "centmoe"),
    "avg-moe": Variant("Avg-MoE", "moe_fedavg", experts=AVG_EXPERTS),
    "fedjets": Variant("FedJETs", "fedjets"),
    "fedrolex": Variant("FedRolex", "fedrolex"),
    "ensemble": Variant("Ensemble of clients", "ensemble"),
    "server-finetuning": Variant("FedAvg, tuned on the server", "server_finetuning"),
    "uniform-mixture": Variant("Uniform mixture", "uniform_mixture"),
    "fedmoe-plain": _fedmoe("neither", **NO_ENTROPY, **NO_SYNC),
    "fedmoe-entropy": _fedmoe("entropy alone", **NO_SYNC),
    "fedmoe-sync": _fedmoe("synchronisation alone", **NO_ENTROPY),
    **{
        f"fedmoe-beta-{name}": _fedmoe(f"β = {name}", entropy_weight=beta)
        for name, beta in BETAS.items()
    },
    "fedmoe-fresh": _fedmoe("fresh starts", start="main", **NO_SYNC),
    "fedmoe-balanced": _fedmoe("balanced load", **BALANCED),
    "fedmoe-fixed-alpha": _fedmoe("α fixed", alpha_lr_scale=0.0),
    **{
        f"fedmoe-lambda-{lam:g}": _fedmoe(f"λ = {lam:g}", lam=lam, client_lam=lam)
        for lam in LAMBDAS
    },
    **{
        f"fedmoe-k{num}": _fedmoe(f"{num} expert{'s' * (num > 1)}", experts=num)
        for num in (*FEWER, 6, *EXPERTS)
    },
    **{
        f"avg-moe-k{num}": Variant(f"Avg-MoE, {num} experts", "moe_fedavg", experts=num)
        for num in (3, 5, 6, *EXPERTS)
    },
    **{f"fedmoe-main-{num}": _fedmoe(f"{num} main experts", num_main=num) for num in MAINS},
    "fedmoe-wc-paper": _fedmoe("Wᶜ of the paper, of sums", sync_weights="paper"),
    "fedmoe-wc-paper-mean": _fedmoe(
        "Wᶜ of the paper, of means", sync_weights="paper", sync_reduce="mean"
    ),
    "fedmoe-wc-convex": _fedmoe("Wᶜ convex", sync_weights="convex"),
    "fedmoe-wr-mean": _fedmoe("Wʳ of means", relevance_reduce="mean"),
    "fedmoe-warm": Variant("Fed-MoE, warm start", "fedmoe", warm_epochs=WARM_EPOCHS),
    "fedmoe-code": _fedmoe("released code", preset="code"),
    "fedmoe-code-straight-through": _fedmoe(
        "released code, straight through", preset="code", gate_value="straight_through"
    ),
    "fedmoe-code-shared": _fedmoe(
        "released code, one first draw", preset="code", init_experts="shared"
    ),
}
PRINTED = ("fedavg", "fedprox", "centmoe", "avg-moe", "fedjets", "fedmoe")  # Table 2, in order
OURS = ("fedmoe-fresh", "server-finetuning", "uniform-mixture", "ensemble")
PARTS = ("fedmoe-plain", "fedmoe-entropy", "fedmoe-sync", "fedmoe")  # Table 4
WEIGHTS = (  # Wʳ and Wᶜ
    *("fedmoe", "fedmoe-wc-paper", "fedmoe-wc-paper-mean", "fedmoe-wc-convex"),
    *("fedmoe-wr-mean", "uniform-mixture"),
)
GATES = (
    *("fedmoe", "fedmoe-balanced", "fedmoe-code", "fedmoe-code-shared"),
    "fedmoe-code-straight-through",
)
STEPS = (  # step sizes of experts and clients, and alpha
    *("fedmoe", *(f"fedmoe-lambda-{lam:g}" for lam in LAMBDAS), "fedmoe-fixed-alpha"),
)
WARM = ("fedmoe", "fedmoe-warm")
PRINTED_AS = {  # by table: published labels of runs that several tables share
    "table5": {"fedmoe": "fedmoe-beta-1e-3", "fedmoe-sync": "fedmoe-beta-0"},
    "table6": {"fedmoe": "fedmoe-top-1"},
    "table8": {"fedmoe": "fedmoe-main-1"},
}


@dataclass(frozen=True)
class Networks:
    """The networks of clients, experts and gate, which are of one model.

    Attributes:
      model: registry name.
      num_classes: L.
      size: further arguments of `build`.
      width: the one of them that is a width; "" if a network cannot be widened.
      gate: those that the gate has in place of these. Its classes are the experts.
      weights, gate_weights: names of pretrained initial weights; None for random ones.
    """

    model: str
    num_classes: int
    size: dict
    width: str = ""
    gate: dict = field(default_factory=dict)
    weights: str | None = None
    gate_weights: str | None = None

    def params(self, times: int = 1) -> dict:
        """Arguments of `build` for clients and experts, `times` as wide."""
        wider = {self.width: times * self.size[self.width]} if self.width else {}
        return {"num_classes": self.num_classes, **self.size, **wider}

    def of_gate(self, num_experts: int) -> dict:
        """The gate, in the form of `Run.modules`."""
        params = {**self.size, **self.gate, "num_classes": num_experts}
        module = {"model": self.model, "params": params}
        return module | ({"weights": self.gate_weights} if self.gate_weights else {})


@dataclass(frozen=True, kw_only=True)
class Setting(_frame.Setting):
    """A federation, and the settings of its runs; labels are of `VARIANTS`.

    Attributes:
      networks: of clients, experts and gate.
      preset: data set of the settings, in `presets`.
      num_clients: M.
      reserved: number of the server's training examples, if declared.
      rounds, cohort: in place of the preset's.
      local, server: likewise, for the solvers of clients and gate.
      params: likewise, for Fed-MoE.
      evaluate_every: rounds between evaluations.
    """

    networks: Networks
    preset: str
    num_clients: int
    reserved: int | None = None
    rounds: int | None = None
    cohort: int | None = None
    local: dict = field(default_factory=dict)
    server: dict = field(default_factory=dict)
    params: dict = field(default_factory=dict)
    evaluate_every: int = 10

    @property
    def num_rounds(self) -> int:
        """Communication rounds of every run."""
        return self.rounds or SETTINGS[self.preset].rounds

    @property
    def num_experts(self) -> int:
        """K, which is m, the size of a cohort (section 0)."""
        return self.cohort or SETTINGS[self.preset].cohort

    def log_rounds(self) -> list[int]:
        """Rounds in which the gate and alpha are logged: the first, then evenly."""
        every = -(-self.num_rounds // LOGS)
        return sorted({1, *range(every, self.num_rounds + 1, every), self.num_rounds})

    def also_top(self) -> list[int]:
        """Numbers of experts that inference keeps in further protocols of "fedmoe" (Table 6)."""
        return [num for num in KEPT.values() if num <= self.num_experts]

    def run(self, label: str) -> Run:
        """The run of a label."""
        variant = VARIANTS[label]
        preset = fedmoe(self.preset, variant.preset, self.num_rounds)
        local = SETTINGS[self.preset].local | {"keeps": "round"} | self.local
        return self.make_run(
            label,
            variant,
            params=self._params(variant, preset, local)
            | ({"also_top": self.also_top()} if label == "fedmoe" and "kept" in self.roles else {}),
            model=self.networks.model,
            model_params=self.networks.params(2 if variant.method == "fedrolex" else 1),
            modules=self._modules(variant),
            rounds=self.num_rounds,
            local=local,
            participation=self._participation(variant.method),
            evaluate_every=min(self.evaluate_every, self.num_rounds),
            weights=self.networks.weights,
        )

    def notes(self, label: str) -> tuple[str, ...]:
        """See `NOTES`."""
        return NOTES.get(label, ())

    def _modules(self, variant: Variant) -> dict:
        """The gate; for FedRolex the clients' network, which is smaller than the server's."""
        if variant.method == "fedrolex":
            return {"small": {"model": self.networks.model, "params": self.networks.params()}}
        if variant.method in UNGATED:
            return {}
        return {"gate": self.networks.of_gate(variant.experts or self.num_experts)}

    def _params(self, variant: Variant, preset: dict, local: dict) -> dict:
        """Hyper-parameters of all runs of a method here."""
        match variant.method:
            case "fedmoe" | "uniform_mixture":
                own, server = self.params, self.server
                if variant.preset == "code":  # has its own step sizes and epochs
                    own, server = {}, {n: x for n, x in server.items() if n != "epochs"}
                solver = {"server": preset["server"] | server}
                epochs = variant.warm_epochs
                warm = {"warm_start": {**local, "epochs": epochs}} if epochs else {}
                return {**preset, **solver, **own, **warm, "log_rounds": self.log_rounds()}
            case "centmoe" | "fedjets" | "moe_fedavg":
                return {"entropy_weight": preset["entropy_weight"]}
            case "server_finetuning":
                return {"server": local}
            case _:
                return {}

    def _participation(self, method: str) -> dict:
        anchored = method == "fedjets"
        cohort = (1 + anchored) * self.num_experts
        selection = "anchored" if anchored else SETTINGS[self.preset].selection
        return _frame.participation(cohort, self.num_clients) | {"selection": selection}
