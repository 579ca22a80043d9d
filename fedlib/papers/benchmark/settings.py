"""What the runs of the benchmark are: methods, their settings, and how they are tuned.

Nothing here stops, chooses a round or picks an expert by test examples.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fedlib.papers import _frame
from fedlib.spec import Run

NUM_EXPERTS = 3  # as many as there are concepts, for all methods with experts
DIM = 20
SIZES = {"in_features": DIM, "num_classes": 2}
RATE = 0.5  # of the local solver, in worlds
RATES = (0.01, 3.0)  # from which tuning takes it there: two and a half decades
TUNING_SEED = 100  # of the cut and the runs that tune; no reported run has it
SERVER_LR = 0.03  # of the server's Adam, in methods that have one

# By label: title, registry name, hyper-parameters. What is not stated is the class's default.
METHODS = {
    "pooled": ("Pooled data", "pooled", {}),
    "local": ("Local", "local", {}),
    "fedavg": ("FedAvg", "fedavg", {}),
    "fedavg-plus": ("FedAvg, fine-tuned", "fedavg_plus", {}),
    "ditto": ("Ditto", "ditto", {"lam": 0.1}),
    "apfl": ("APFL", "apfl", {"alpha": 0.5}),
    "known-clusters": ("Known clusters", "oracle_clusters", {"num_clusters": NUM_EXPERTS}),
    "ifca": (
        "IFCA",
        "ifca",
        {"num_experts": NUM_EXPERTS, "cluster_init": "full", "stop": "never", "stop_split": "val"}
        | {"exploration": "eps", "epsilon": 0.0},
    ),
    "fedem": ("FedEM", "fedem", {"num_experts": NUM_EXPERTS}),
    "gated-experts": ("Gated experts", "gated_experts", {"num_experts": NUM_EXPERTS}),
    "fedmix": ("FedMix", "fedmix", {"num_experts": NUM_EXPERTS, "server_lr": SERVER_LR}),
    "biased-fedavg": ("Biased FedAvg", "biased_fedavg", {"server_lr": SERVER_LR}),
    "fedrep": ("FedRep", "fedrep", {}),
    "lg-fedavg": ("LG-FedAvg", "lg_fedavg", {}),
    "pfedmm": ("pFedMM", "pfedmm", {"num_experts": NUM_EXPERTS}),
}
NEEDS_A_BODY = ("fedrep", "lg-fedavg", "pfedmm")  # which a linear model has not
NEEDS_CLUSTERS = ("known-clusters",)
HOMES = {  # by label: the worlds that are as the method assumes
    "pooled": ("one",),
    "local": ("own",),
    "fedavg": ("one",),
    "known-clusters": ("clusters",),
    "ifca": ("clusters",),
    "fedem": ("clusters", "mixtures"),
    "gated-experts": ("regions",),
    "fedmix": ("regions",),
    "biased-fedavg": ("priors",),
    "fedavg-plus": ("priors",),
    "fedrep": ("heads",),
}


def tuning(trials: int, rates: tuple[float, float] = RATES, rung: bool = False) -> dict:
    """How runs are tuned, see `fedlib.spec.Run`: so many trials, the first at the declared rate."""
    return {"seed": TUNING_SEED, "trials": trials, "rates": list(rates), "rung": rung}


@dataclass(frozen=True, kw_only=True)
class Setting(_frame.Setting):
    """A federation, and the methods that run on it.

    Attributes:
      labels: methods, of `METHODS`.
      rounds: of every run.
      rate: of the local solver, where nothing is tuned; and of the first trial.
      model, model_params: of every run.
      inputs: numbers in an input, which gates see.
      cohort: share of the seen clients in a round.
      local: of the local solver, besides its rate.
      tuning: see `fedlib.spec.Run`; None tunes nothing.
    """

    rounds: int
    rate: float = RATE
    model: str = "linear"
    model_params: Mapping = field(default_factory=lambda: SIZES)
    inputs: int = DIM
    cohort: float = 1.0
    local: Mapping = field(default_factory=lambda: {"batch_size": 32, "epochs": 1})
    tuning: Mapping | None = None

    def runs(self) -> Iterator[Run]:
        """Every method."""
        for label in self.labels:
            title, method, params = METHODS[label]
            gate = {"gate_features": self.inputs} if method == "gated_experts" else {}
            yield Run(
                federation=self.data.name,
                label=label,
                title=title,
                method=method,
                model=self.model,
                model_params=dict(self.model_params),
                rounds=self.rounds,
                local={"solver": "sgd", "lr": self.rate, **self.local},
                params={**params, **gate},
                participation={"rate": self.cohort, "aggregation": "renormalised"},
                evaluate_every=self.rounds,
                tuning=dict(self.tuning) if self.tuning else None,
            )
