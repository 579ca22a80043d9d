"""The runs of FedMix, made from a federation's settings.

"Paper" is Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission, which has no
official code; sections are those of README.md, and [R] marks a decision of ours there.
"""

from dataclasses import dataclass, field

from fedlib.papers import _frame
from fedlib.spec import Run

LR = 0.05  # paper, of every client (section 5)
SERVER_LR = 1e-3  # paper: Adam with its default hyper-parameters (section 2)
WIDE = (61, 113)  # channels of the wider LeNets: the fewest for 2 and 4 times the parameters (4)
MANY_EXPERTS = (2, 4, 6, 8, 10, 12, 14)  # Figure 11
AVERAGED = {"cifar100": 2000, "femnist": 2000}  # last rounds, Table 1; ten evaluations and 2k
ETAS = (0.5, 0.8, 0.9, 0.95, 0.99)  # Figures 11b and 11d; its levels are not legible [R]
FULL_BATCH = 100_000  # more examples than any client has


@dataclass(frozen=True)
class Variant(_frame.Variant):
    """The meaning of a label.

    Attributes:
      channels: of LeNet-5, if not the federation's.
      local: changed settings of the local solver.
      everybody: whether all clients are in every round.
    """

    channels: int | None = None
    local: dict = field(default_factory=dict)
    everybody: bool = False


def _fedmix(title: str, num_experts: int, **params) -> Variant:
    """FedMix with `num_experts` experts (the paper's K)."""
    return Variant(title, "fedmix", {"num_experts": num_experts, **params})


VARIANTS = {
    "fedmix-k4": _fedmix("FedMix K=4", 4),  # first, because a method's first run has the solid line
    "fedavg": Variant("FedAvg", "fedavg_adam"),
    "biased-fedavg": Variant("Biased FedAvg", "biased_fedavg"),
    "local-global": Variant("Local/Global", "local_global"),
    **{
        f"fedavg-{channels}": Variant(f"FedAvg LeNet-5({channels})", "fedavg_adam", {}, channels)
        for channels in WIDE
    },
    **{f"fedmix-k{k}": _fedmix(f"FedMix K={k}", k) for k in MANY_EXPERTS if k != 4},
    "biased-fedmix-k4": _fedmix("Biased FedMix K=4", 4, private_bias=True),
    **{f"fedmix-k4-eta{eta:g}": _fedmix(f"FedMix K=4, η={eta:g}", 4, pruning=eta) for eta in ETAS},
    "fedmix-k10-eta0.9": _fedmix("FedMix K=10, η=0.9", 10, pruning=0.9),
    "fedmix-k4-entropy": _fedmix("FedMix K=4 with local entropy", 4, local_entropy=True),
    "fedmix-k4-long": _fedmix("FedMix K=4", 4),
    "fedmix-angle": _fedmix("FedMix q(z|angle)", 4, condition="side", num_sides=8),
    "fedmix-label": _fedmix("FedMix q(z|y)", 4),
    "fedmix-vae": Variant("FedMix K=4", "fedmix_vae", {"num_experts": 4}),
    **{
        f"clients-k{k}": Variant(f"FedMix q(z|s), K={k}", "fedmix_clients", {"num_experts": k})
        for k in (4, 3, 5)
    },
    "clients-k4-early": Variant("FedMix q(z|s), K=4", "fedmix_clients", {"num_experts": 4}),
    "leak-step": Variant(
        "One full-batch step", "label_leakage", local={"batch_size": FULL_BATCH}, everybody=True
    ),
    "leak-epoch": Variant("One epoch of mini-batches", "label_leakage", everybody=True),
    "plain-k4": Variant("Plain mixture, K=4", "plain_mixture", {"num_experts": 4}),
}
LENET_LINES = (  # Figure 4a and c, in its order; K=2 and K=10 are ours
    *("fedavg", "biased-fedavg", "fedavg-61", "fedavg-113", "fedmix-k4", "fedmix-k2"),
    *("fedmix-k10", "biased-fedmix-k4", "local-global"),
)
ROTATION_LINES = ("fedavg", "biased-fedavg", "fedmix-label", "fedmix-angle")  # Figures 5 and 6


@dataclass(frozen=True, kw_only=True)
class Setting(_frame.Setting):
    """A federation, and the settings of its runs; labels are of `VARIANTS`.

    Attributes:
      model: registry name, and the arguments of its `build`.
      cohort: number of clients in a round; num_clients: of training clients, if the partition does
        not say it.
      rounds: T; `own_rounds` by label, where it differs.
      batch_size, epochs: of a client in a round.
      evaluate_every: rounds between evaluations.
      followed: protocols that have learning curves, besides the default one.
      shared_gates: whether FedMix federates its gates (section 7.1).
      server_lr: of Adam at the server.
      table_rounds: rounds after which q(z|y), or the gates' weights by label, are recorded.
      vae_epochs: most epochs of the autoencoders, which stop early (appendix F).
      steps: of a client in a round, instead of epochs.
      vae: arguments of the clients' autoencoders, if there are any.
      seeds: in place of the paper's.
    """

    model: tuple[str, dict]
    rounds: int
    batch_size: int
    cohort: int = 10  # paper, by the traffic of Table 1
    epochs: int = 1
    evaluate_every: int = 50
    own_rounds: dict[str, int] = field(default_factory=dict)
    followed: tuple[str, ...] = ()
    shared_gates: bool = False
    server_lr: float = SERVER_LR
    table_rounds: tuple[int, ...] = ()
    vae: dict = field(default_factory=dict)
    vae_epochs: int = 200
    steps: int | None = None
    seeds: tuple[int, ...] = ()
    num_clients: int | None = None

    @property
    def split(self) -> str:
        """The split of learning curves: validation if there is any, otherwise test (section 5)."""
        return "val" if self.data.partition.get("val_fraction") else "test"

    def run(self, label: str) -> Run:
        """The run of a label."""
        variant = VARIANTS[label]
        rounds = self.own_rounds.get(label, self.rounds)
        clients = self.num_clients or _frame.num_training_clients(self.data)
        cohort = clients if variant.everybody else self.cohort
        model, arguments = self.model
        own = {"channels": variant.channels} if variant.channels else {}
        local = {"solver": "sgd", "lr": LR, "batch_size": self.batch_size, "epochs": self.epochs}
        vae = {"vae": {"model": "vae", "params": self.vae}}
        return self.make_run(
            label,
            variant,
            params=self._common(variant.method, self._longest(variant)),
            model=model,
            model_params={**arguments, **own},
            modules=vae if variant.method == "fedmix_vae" else {},
            rounds=rounds,
            local={**local, **({"steps": self.steps} if self.steps else {}), **variant.local},
            participation=_frame.participation(cohort, clients),
            evaluate_every=min(self.evaluate_every, rounds),
            seeds=self.seeds,
        )

    def _longest(self, variant: Variant) -> int:
        """Rounds of the longest among the runs that differ from this one only in their rounds."""
        same = [label for label in self.labels if VARIANTS[label] == variant]
        return max(self.own_rounds.get(label, self.rounds) for label in same)

    def _common(self, method: str, rounds: int) -> dict:
        """Hyper-parameters of all runs of a method here, with tables up to round `rounds`."""
        if method == "label_leakage":
            return {}
        tables = {"table_rounds": [r for r in self.table_rounds if r <= rounds]}
        if method == "plain_mixture":
            return tables
        served = {"server_lr": self.server_lr, "horizon": rounds, "curves": list(self.followed)}
        if method == "local_global" and self.model[0] == "mlp":
            served |= {"private": "body.1"}  # the lowest layer; body.0 only flattens
        if method in ("fedmix", "fedmix_vae"):
            served |= tables | ({"gates": "shared"} if self.shared_gates else {})
        if method == "fedmix_vae":
            served["vae_epochs"] = self.vae_epochs
        return served
