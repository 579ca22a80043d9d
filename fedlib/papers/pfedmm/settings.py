"""Methods, hyper-parameters and experiments of pFedMM, for any federation.

"Scripts" are those of the official repository Archipes/pFedMM; "FedEM's scripts" those of
omarfoq/FedEM; sections are those of README.md.
"""

from dataclasses import dataclass
from typing import NamedTuple

from fedlib.papers import _frame
from fedlib.papers._frame import Variant
from fedlib.spec import Run

TRAINING_SEED = 1234  # training scripts; the published numbers are of this one seed
ALPHA = 0.4  # data scripts
NUM_EXPERTS = 3  # training scripts, n_learners of FedEM and pFedMM
MOE_EXPERTS = 2  # training scripts, n_learners of its "pFedMoE"
BATCH_SIZE = 128  # training scripts
WEIGHT_DECAY = 5e-4  # utils/optim.py, of every solver
MOMENTUM = 0.9  # utils/optim.py, of "sgd"; "prox_sgd" (FedProx) has none

# The methods: first the rows of the paper's table, in order, then baselines that are in its code,
# but have no script and no number.
PUBLISHED = {
    "local": Variant("Local", "local"),
    "fedavg": Variant("FedAvg", "fedavg"),
    "fedprox": Variant("FedProx", "fedprox"),
    "fedavg-plus": Variant("FedAvg+", "fedavg_plus"),
    "clustered-coordinate": Variant("Clustered FL", "clustered", {"max_norm": "coordinate"}),
    "pfedme": Variant("pFedMe", "pfedme"),
    "fedem": Variant("FedEM", "fedem", {"num_experts": NUM_EXPERTS}),
    "gated-experts": Variant("MoE (pFedMM's)", "gated_experts", {"num_experts": MOE_EXPERTS}),
    "pfedmm": Variant("pFedMM", "pfedmm", {"num_experts": NUM_EXPERTS}),
}
# A method of the table without a fault of the authors' code (section 2.5).
CORRECTED = {"clustered": Variant("Clustered FL (L2 norm)", "clustered")}
UNPUBLISHED = {
    # Ours, as no script has it.
    "pfedme-moreau": Variant(
        "pFedMe (Moreau)", "pfedme_moreau", {"lam": 15.0, "inner_lr": 0.01, "inner_steps": 5}
    ),
    "l2sgd": Variant("L2SGD", "l2sgd", {"p": 0.1, "lam": 0.05}),  # the code's p; its lam, 0: Local
    "apfl": Variant("APFL", "apfl"),
    "qffl": Variant("q-FFL", "qffl", {"q": 1.0}),  # default of the code
    "afl": Variant("AFL", "afl", {"lr_lambda": 0.01}),  # ours, as the code's 0 is distributed SGD
}
# Methods of yours; no note compares them with the authors' code.
OWN: dict[str, Variant] = {}
METHODS = PUBLISHED | CORRECTED | UNPUBLISHED | OWN
FEDEM_README = ("local", "fedavg", "fedavg-plus", "fedem")  # its table's rows that we have
NOT_IN_FEDEM = ("gated-experts", "pfedmm", *UNPUBLISHED)
EXPERTS = (2, 4, 5, 6, 7)  # effect scripts, besides NUM_EXPERTS
MIXTURES = ("fedem", "pfedmm")  # methods with a sweep of the number of experts
SAMPLED = ("fedavg", "fedem", "pfedmm")  # shown with sampled clients
SERVERLESS = ("fedavg", "fedem", "gated-experts", "pfedmm")  # shown without a server
NO_MOMENTUM = ("fedprox", "pfedme")  # training scripts, "prox_sgd"

PFEDME_MU = 1.0  # training scripts
SAMPLING_RATE = 0.2  # ours: the README has a section on client sampling without a value
UNSEEN_FRACTION = 0.2  # data README, test_tasks_frac; FedEM's scripts, train_tasks_frac 0.8

NOTES = {  # by label
    "fedavg-plus": (
        "The solver that fine-tunes FedAvg+ lives from one evaluation to the next, as in the "
        "official code, so its learning rate falls with the number of evaluations.",
    ),
    "clustered-coordinate": (
        "A cluster splits by the rule of the authors' code, whose largest norm of an update is its "
        "largest coordinate.",
    ),
    "clustered": (
        "The largest norm of an update is Euclidean, as the authors of Clustered FL have it; the "
        "published row is of the other rule.",
    ),
    "gated-experts": (
        'pFedMM\'s code and tables print it as "pFedMoE"; it is not the method of Yi et al. '
        "(2024) of that name.",
    ),
    "gated-experts-gossip": (
        "The mixture's private expert and gate stay private here; the official code mixes them "
        "with the neighbours' too, after which nothing of it is private.",
    ),
    **dict.fromkeys(
        UNPUBLISHED,
        ("pFedMM's official code names it and has no script for it; its settings are ours.",),
    ),
}
PUBLISHED_NOTES = {  # on rows of the paper's table
    "pfedme": (
        "The authors' figure has no curve for it, so that the published row is probably not from "
        "their code; ours follows their code.",
    ),
    "fedem": (
        "The published FedEM row equals the averages in FedEM's own README; the authors' FedEM "
        "curve ends lower (82.7 on EMNIST, 82.9 on CIFAR-10, 43.0 on CIFAR-100).",
    ),
    "gated-experts": (
        "The published row is 5 to 11 points above the authors' own curve, which ends at 77.4 on "
        "EMNIST, 71.4 on CIFAR-10 and 30.9 on CIFAR-100.",
    ),
}
EVERYBODY = {"rate": 1.0, "aggregation": "damped"}  # training scripts, sampling_rate


class Change(NamedTuple):
    """A method with one thing changed.

    Attributes:
      of: its label.
      what: the change, for the title; "" for no change.
      params: its hyper-parameters that change.
      rate: learning rate, as a multiple of pFedMM's; None for its own.
      participation: of its clients.
    """

    of: str
    what: str = ""
    params: dict = {}
    participation: dict = EVERYBODY
    rate: float | None = None


def of_experts(*numbers: int) -> tuple[str, ...]:
    """The labels of mixtures with these numbers of experts."""
    return tuple(f"{label}-m{number}" for label in MIXTURES for number in numbers)


ABLATIONS = {  # of one part of pFedMM
    "pfedmm-no-relu": Change("pfedmm", "no ReLU on logits", {"relu_logits": False}),
    "pfedmm-relu": Change("pfedmm", "ReLU on logits", {"relu_logits": True}),
    "pfedmm-body-rate": Change("pfedmm", "body at the heads' rate", {"body_lr_scale": 1.0}),
    "pfedmm-uniform-prior": Change("pfedmm", "uniform prior", {"prior": "uniform"}),
}
# The scripts give methods different rates (section 6.1), and the code pFedMM's body M times that of
# its heads (section 2.13).
AT_RATES = {
    "fedavg-heads-rate": Change("fedavg", "rate of pFedMM's heads", rate=1.0),
    "fedavg-body-rate": Change("fedavg", "rate of pFedMM's body", rate=float(NUM_EXPERTS)),
}
GOSSIP = {"rate": 1.0, "aggregation": "gossip"}
PARTICIPATION = {
    **{f"{label}-gossip": Change(label, "no server", participation=GOSSIP) for label in SERVERLESS},
    **{
        f"{label}-{aggregation}": Change(
            label,
            f"{SAMPLING_RATE:.0%} of clients, {aggregation}",
            participation={"rate": SAMPLING_RATE, "aggregation": aggregation},
        )
        for label in SAMPLED
        for aggregation in ("damped", "renormalised")
    },
}
CHANGES = {
    **{
        f"{label}-m{number}": Change(label, f"M={number}", {"num_experts": number})
        for label in MIXTURES
        for number in EXPERTS
    },
    **ABLATIONS,
    **AT_RATES,
    **PARTICIPATION,
}


@dataclass(frozen=True, kw_only=True)
class Setting(_frame.Setting):
    """A federation and the settings of its runs.

    Attributes:
      model, model_params, weights, class_weights: see `fedlib.spec.Run`.
      rounds: R, which determines the learning-rate schedule; the official loop has one round more.
      first: number of rounds to run, at the rates of a whole run; None for all.
      rates: learning rate of each method.
      fedprox_mu, pfedme_mu: strength of the proximal terms.
      gate_features: numbers in an input, for the gate of "gated-experts".
      batch_size, drop_last: of the local solver.
      relu_logits: of pFedMM.
      evaluate_every: rounds between evaluations.
      labels: of `METHODS` and `CHANGES`.
      roles: its tables, which determine its published numbers: "main", if the pFedMM paper has the
        data set; "fedem-readme", if FedEM has it; "fedem-settings", for the settings of FedEM's
        scripts; "heterogeneity" or "unseen", if it only varies one of these.
      of_fedem: whether the data set is FedEM's, on which `NOT_IN_FEDEM` have no published numbers.
    """

    model: str
    model_params: dict
    rounds: int
    rates: dict[str, float]
    fedprox_mu: float
    gate_features: int
    pfedme_mu: float = PFEDME_MU
    first: int | None = None
    batch_size: int = BATCH_SIZE
    drop_last: bool = False
    relu_logits: bool = False
    weights: str | None = None
    class_weights: tuple[float, ...] | None = None
    evaluate_every: int = 1
    labels: tuple[str, ...] = tuple(METHODS)
    roles: tuple[str, ...] = ("main",)
    of_fedem: bool = False

    def run(self, label: str) -> Run:
        """The run of a method, or of one with a change."""
        change = CHANGES.get(label, Change(label))
        of = METHODS[change.of]
        what = f" ({change.what})" if change.what else ""
        return self.make_run(
            label,
            Variant(f"{of.title}{what}", of.method, of.params | change.params),
            params=self._params(change.of),
            model=self.model,
            model_params=self.model_params,
            rounds=self.first or self.rounds + 1,  # the official loop has rounds 0 to R
            local=self._solver(change),
            participation=change.participation,
            evaluate_every=self.evaluate_every,
            weights=self.weights,
            class_weights=self.class_weights,
        )

    def notes(self, label: str) -> tuple[str, ...]:
        """Differences from the authors' code and numbers."""
        notes = NOTES.get(label, ())
        notes += PUBLISHED_NOTES.get(label, ()) if "main" in self.roles else ()
        if self.of_fedem and label in NOT_IN_FEDEM:
            not_run = f"Not run on {self.data.family or self.data.title} by its authors"
            learns = "the learning rate is FedEM's"
            notes += (f"{not_run}, and no number is published; {learns}.",)
        return notes

    def _solver(self, change: Change) -> dict:
        """Scripts: multi-step schedule, counted in local epochs (section 1.6)."""
        own, lead = self.rates[change.of], self.rates["pfedmm"]
        return {
            "solver": "sgd",
            "lr": own if change.rate is None else change.rate * lead,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "momentum": 0.0 if change.of in NO_MOMENTUM else MOMENTUM,
            "weight_decay": WEIGHT_DECAY,
            "schedule": {
                "kind": "multi_step",
                "milestones": [self.rounds // 2, 3 * (self.rounds // 4)],
                "factor": 0.1,
                "by": "epoch",
            },
        }

    def _params(self, label: str) -> dict:
        """Hyper-parameters of a method that are not the same everywhere."""
        return {
            "fedprox": {"mu": self.fedprox_mu},
            "pfedme": {"mu": self.pfedme_mu},
            "gated-experts": {"gate_features": self.gate_features},
            "pfedmm": {"relu_logits": self.relu_logits},
        }.get(label, {})
