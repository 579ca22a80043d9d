"""What the runs of the benchmark are: methods, their settings, and the rates that each may choose.

Nothing here stops, chooses a round or picks an expert by test examples.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fedlib.papers import _frame
from fedlib.spec import Run

NUM_EXPERTS = 3  # as many as there are concepts, for all methods with experts
DIM = 20
SIZES = {"in_features": DIM, "num_classes": 2}
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
        {"num_experts": NUM_EXPERTS, "cluster_init": "full", "stop": "never", "stop_split": "val"},
    ),
    "fedem": ("FedEM", "fedem", {"num_experts": NUM_EXPERTS}),
    "gated-experts": (
        "Gated experts",
        "gated_experts",
        {"num_experts": NUM_EXPERTS, "gate_features": DIM},
    ),
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


def label_of(method: str, rate: float) -> str:
    """The label of a run of a method at a rate."""
    return f"{method}-lr{rate:g}"


@dataclass(frozen=True, kw_only=True)
class Setting(_frame.Setting):
    """A federation, and the methods that run on it, each at every rate.

    Attributes:
      labels: methods, of `METHODS`.
      rates: of the local solver.
      rounds: of every run.
      hidden: units of the hidden layer; None is a linear model.
    """

    rates: tuple[float, ...]
    rounds: int
    hidden: int | None = None

    def runs(self) -> Iterator[Run]:
        """Every method at every rate."""
        for label in self.labels:
            for rate in self.rates:
                yield self._run(label, rate)

    def _run(self, label: str, rate: float) -> Run:
        title, method, params = METHODS[label]
        many = len(self.rates) > 1
        return Run(
            federation=self.data.name,
            label=label_of(label, rate),
            title=f"{title}, rate {rate:g}" if many else title,
            method=method,
            model="mlp" if self.hidden else "linear",
            model_params=SIZES | ({"hidden": self.hidden} if self.hidden else {}),
            rounds=self.rounds,
            local={"solver": "sgd", "lr": rate, "batch_size": 32, "epochs": 1},
            params=params,
            participation={"rate": 1.0, "aggregation": "renormalised"},
            evaluate_every=self.rounds,
        )
