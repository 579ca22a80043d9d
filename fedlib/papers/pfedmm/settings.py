"""Methods, hyper-parameters and experiments of pFedMM, for any federation.

"Scripts" are those of the official repository Archipes/pFedMM; "FedEM's scripts" those of
omarfoq/FedEM.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fedlib.papers import _frame
from fedlib.papers._frame import Variant
from fedlib.spec import Run

TRAINING_SEED = 1234  # training scripts; the published numbers are of this one seed
ALPHA = 0.4  # data scripts
NUM_EXPERTS = 3  # training scripts, n_learners of FedEM and pFedMM
BATCH_SIZE = 128  # training scripts
WEIGHT_DECAY = 5e-4  # utils/optim.py, of every solver
MOMENTUM = 0.9  # utils/optim.py, of "sgd"; "prox_sgd" (FedProx) has none

# Title and registry name of each method: first the rows of the paper's table, in order, then
# baselines that are in its code, but have no script and no number.
PUBLISHED = {
    "local": ("Local", "local"),
    "fedavg": ("FedAvg", "fedavg"),
    "fedprox": ("FedProx", "fedprox"),
    "fedavg-plus": ("FedAvg+", "fedavg_plus"),
    "clustered": ("Clustered FL", "clustered"),
    "pfedme": ("pFedMe", "pfedme"),
    "fedem": ("FedEM", "fedem"),
    "gated-experts": ("MoE (pFedMM's)", "gated_experts"),
    "pfedmm": ("pFedMM", "pfedmm"),
}
UNPUBLISHED = {
    "pfedme-moreau": ("pFedMe (Moreau)", "pfedme_moreau"),
    "l2sgd": ("L2SGD", "l2sgd"),
    "apfl": ("APFL", "apfl"),
    "qffl": ("q-FFL", "qffl"),
    "afl": ("AFL", "afl"),
}
# Methods of yours; no note compares them with the authors' code.
OWN: dict[str, tuple[str, str]] = {}
METHODS = PUBLISHED | UNPUBLISHED | OWN
FEDEM_README = ("local", "fedavg", "fedavg-plus", "fedem")  # its table's rows that we have
EXPERTS = (2, 4, 5, 6, 7)  # effect scripts, besides NUM_EXPERTS
MIXTURES = ("fedem", "pfedmm")  # methods with a sweep of the number of experts
SAMPLED = ("fedavg", "fedem", "pfedmm")  # shown with sampled clients
SERVERLESS = ("fedavg", "fedem", "gated-experts", "pfedmm")  # shown without a server
MOE_EXPERTS = 2  # training scripts, n_learners of its "pFedMoE"
NO_MOMENTUM = ("fedprox", "pfedme")  # training scripts, "prox_sgd"

PFEDME_MU = 1.0  # training scripts
MOREAU = {"lam": 15.0, "inner_lr": 0.01, "inner_steps": 5}  # ours, as no script has it
L2SGD = {"p": 0.1, "lam": 0.05}  # p: default of the code; lam: ours, as the code's 0 is Local
QFFL = {"q": 1.0}  # default of the code
AFL = {"lr_lambda": 0.01}  # ours, as the code's 0 is distributed SGD

SAMPLING_RATE = 0.2  # ours: the README has a section on client sampling without a value
UNSEEN_FRACTION = 0.2  # data README, test_tasks_frac; FedEM's scripts, train_tasks_frac 0.8

FEDEM_IMPORTED = (
    "The published FedEM row equals the averages in FedEM's own README; the authors' FedEM curve "
    "ends lower (82.7 on EMNIST, 82.9 on CIFAR-10, 43.0 on CIFAR-100)."
)
ADAPTATION = (
    "The solver that fine-tunes FedAvg+ lives from one evaluation to the next, as in the official "
    "code, so its learning rate falls with the number of evaluations."
)
GATED_ABOVE = (
    "The published row is 5 to 11 points above the authors' own curve, which ends at 77.4 "
    "on EMNIST, 71.4 on CIFAR-10 and 30.9 on CIFAR-100."
)
PFEDME_IMPORTED = (
    "The authors' figure has no curve for it, so that the published row is probably not "
    "from their code; ours follows their code."
)
GATED_GOSSIP = (
    "The mixture's private expert and gate stay private here; the official code mixes them with "
    "the neighbours' too, after which nothing of it is private."
)
GATED_NAME = (
    'pFedMM\'s code and tables print it as "pFedMoE"; it is not the method of Yi et al. (2024) of '
    "that name."
)
OURS = "pFedMM's official code names it and has no script for it; its settings are ours."
NOTES = {
    "fedavg-plus": (ADAPTATION,),
    "gated-experts": (GATED_NAME,),
    **dict.fromkeys(UNPUBLISHED, (OURS,)),
}
PUBLISHED_NOTES = {  # on rows of the paper's table
    "pfedme": (PFEDME_IMPORTED,),
    "fedem": (FEDEM_IMPORTED,),
    "gated-experts": (GATED_ABOVE,),
}
GOSSIP_NOTES = {"gated-experts": (GATED_GOSSIP,)}
EVERYBODY = {"rate": 1.0, "aggregation": "damped"}  # training scripts, sampling_rate


class Change(NamedTuple):
    """A method with one thing changed.

    Attributes:
      of: its label.
      what: the change, for the title.
      params: its hyper-parameters that change.
      participation: of its clients.
      notes: of the run.
    """

    of: str
    what: str
    params: dict = {}
    participation: dict = EVERYBODY
    notes: tuple[str, ...] = ()


def of_experts(*numbers: int) -> tuple[str, ...]:
    """The labels of mixtures with these numbers of experts."""
    return tuple(f"{label}-m{number}" for label in MIXTURES for number in numbers)


ABLATIONS = {  # of one part of pFedMM
    "pfedmm-no-relu": Change("pfedmm", "no ReLU on logits", {"relu_logits": False}),
    "pfedmm-relu": Change("pfedmm", "ReLU on logits", {"relu_logits": True}),
    "pfedmm-body-rate": Change("pfedmm", "body at the heads' rate", {"body_lr_scale": 1.0}),
    "pfedmm-uniform-prior": Change("pfedmm", "uniform prior", {"prior": "uniform"}),
    "pfedmm-private-norms": Change("pfedmm", "private batch norm", {"private_norms": True}),
}
PARTICIPATION = {
    **{
        f"{label}-gossip": Change(
            label,
            "no server",
            participation={"rate": 1.0, "aggregation": "gossip"},
            notes=GOSSIP_NOTES.get(label, ()),
        )
        for label in SERVERLESS
    },
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
      unpublished: note on methods whose authors do not run them on this data set.
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
    unpublished: dict[str, str] = field(default_factory=dict)

    def run(self, label: str) -> Run:
        """The run of a method, or of one with a change."""
        if label in CHANGES:
            change = CHANGES[label]
            run = self.run(change.of)
            return replace(
                run,
                label=label,
                title=f"{run.title} ({change.what})",
                params={**run.params, **change.params},
                participation=change.participation,
                notes=change.notes,
            )
        return self.made(
            label,
            Variant(*METHODS[label]),
            params=self._params(label),
            model=self.model,
            model_params=self.model_params,
            rounds=self.first or self.rounds + 1,  # the official loop has rounds 0 to R
            local=self._solver(label),
            participation=EVERYBODY,
            evaluate_every=self.evaluate_every,
            weights=self.weights,
            class_weights=self.class_weights,
        )

    def notes(self, label: str) -> tuple[str, ...]:
        """Differences from the authors' code and numbers."""
        notes = NOTES.get(label, ())
        notes += PUBLISHED_NOTES.get(label, ()) if "main" in self.roles else ()
        return notes + ((self.unpublished[label],) if label in self.unpublished else ())

    def _solver(self, label: str) -> dict:
        """Scripts: multi-step schedule, counted in local epochs (section 1.6)."""
        return {
            "solver": "sgd",
            "lr": self.rates[label],
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "momentum": 0.0 if label in NO_MOMENTUM else MOMENTUM,
            "weight_decay": WEIGHT_DECAY,
            "schedule": {
                "kind": "multi_step",
                "milestones": [self.rounds // 2, 3 * (self.rounds // 4)],
                "factor": 0.1,
                "by": "epoch",
            },
        }

    def _params(self, label: str) -> dict:
        return {
            "fedprox": {"mu": self.fedprox_mu},
            "pfedme": {"mu": self.pfedme_mu},
            "fedem": {"num_experts": NUM_EXPERTS},
            "gated-experts": {"num_experts": MOE_EXPERTS, "gate_features": self.gate_features},
            "pfedmm": {"num_experts": NUM_EXPERTS, "relu_logits": self.relu_logits},
            "pfedme-moreau": MOREAU,
            "l2sgd": L2SGD,
            "qffl": QFFL,
            "afl": AFL,
        }.get(label, {})
