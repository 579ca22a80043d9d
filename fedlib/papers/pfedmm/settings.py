"""Methods, hyper-parameters and experiments of pFedMM, for any federation.

"Scripts" are those of the official repository Archipes/pFedMM; "FedEM's scripts" those of
omarfoq/FedEM.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from fedlib.papers import _frame
from fedlib.spec import Data, Run

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

# Ablations of pFedMM, each with one part switched: title and hyper-parameters.
ABLATIONS = {
    "no-relu": ("no ReLU on logits", {"relu_logits": False}),
    "relu": ("ReLU on logits", {"relu_logits": True}),
    "body-rate": ("body at the heads' rate", {"body_lr_scale": 1.0}),
    "uniform-prior": ("uniform prior", {"prior": "uniform"}),
    "private-norms": ("private batch norm", {"private_norms": True}),
}

NO_EXPERIMENTS = {
    **{"num_experts": (), "participation": False, "ablations": (), "alphas": ()},
    "unseen": (),
}


def of_experts(label: str, number: int) -> str:
    """The label of a mixture with this number of experts."""
    return f"{label}-m{number}"


@dataclass(frozen=True, kw_only=True)
class Setting(_frame.Setting):
    """A federation, the settings of its runs, and its experiments.

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
      labels: the methods to run.
      roles: its tables, which determine its published numbers: "main", if the pFedMM paper has the
        data set; "fedem-readme", if FedEM has it; "fedem-settings", for the settings of FedEM's
        scripts; "heterogeneity" or "unseen", if it only varies one of these.
      unpublished: note on methods whose authors do not run them on this data set.
      num_experts: values of E (the paper's M) to compare.
      participation: whether to run methods also without a server and with sampled clients.
      ablations: the `ABLATIONS` to run.
      alphas: concentrations of the partition to compare, for the methods `alpha_labels`.
      unseen: methods that also run with a part of the clients unseen; all others train all clients.
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
    num_experts: tuple[int, ...] = ()
    participation: bool = False
    ablations: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    alpha_labels: tuple[str, ...] = tuple(PUBLISHED)
    unseen: tuple[str, ...] = ()

    def runs(self) -> Iterator[Run]:
        """Every method once, then the runs of the other experiments."""
        for label in self.labels:
            yield self._run(label)
        for label in MIXTURES:
            for experts in self.num_experts:
                if experts != NUM_EXPERTS:
                    changed = {"num_experts": experts}
                    name = of_experts(label, experts)
                    yield self._variant(label, name, f"M={experts}", params=changed)
        for name in self.ablations:
            what, changed = ABLATIONS[name]
            yield self._variant("pfedmm", f"pfedmm-{name}", what, params=changed)
        for label in SERVERLESS if self.participation else ():
            gossip = {"rate": 1.0, "aggregation": "gossip"}
            notes = GOSSIP_NOTES.get(label, ())
            yield self._variant(
                label, f"{label}-gossip", "no server", notes=notes, participation=gossip
            )
        for label in SAMPLED if self.participation else ():
            for aggregation in ("damped", "renormalised"):
                what = f"{SAMPLING_RATE:.0%} of clients, {aggregation}"
                some = {"rate": SAMPLING_RATE, "aggregation": aggregation}
                yield self._variant(label, f"{label}-{aggregation}", what, participation=some)

    def variants(self) -> Iterator["Setting"]:
        """The settings of the experiments that need federations of their own."""
        yield from self._heterogeneity()
        if self.unseen:
            yield self._unseen_clients()

    def alone(self, data: Data, labels: tuple[str, ...], role: str, **changes) -> "Setting":
        """The setting on other data, with these methods and without experiments."""
        named = {"data": data, "labels": labels, "roles": (role,)}
        return replace(self, **NO_EXPERIMENTS | named | changes)

    def _unseen_clients(self) -> "Setting":
        """The setting with a part of the clients unseen."""
        data = replace(
            self.data,
            name=f"{self.data.name}-unseen",
            partition={**self.data.partition, "unseen_fraction": UNSEEN_FRACTION},
            title=f"{self.data.title}, {UNSEEN_FRACTION:.0%} unseen",
            family=self.data.title,
        )
        return self.alone(data, self.unseen, "unseen")

    def _heterogeneity(self) -> Iterator["Setting"]:
        """The settings of every other concentration of the partition."""
        for alpha in self.alphas:
            if alpha == ALPHA:
                continue
            short = f"{alpha:g}".replace("e+0", "e")  # 1e6
            partition = {**self.data.partition, "alpha": alpha}
            data = replace(
                self.data,
                name=f"{self.data.name}-alpha{short}",
                partition=partition,
                title=f"{self.data.title}, α={short}",
                family=self.data.title,
                partition_label=f"{partition['kind']}{short}",
            )
            yield self.alone(data, self.alpha_labels, "heterogeneity")

    def _variant(
        self,
        label: str,
        changed: str,
        what: str,
        params: dict | None = None,
        notes: tuple[str, ...] = (),
        **changes,
    ) -> Run:
        run = self._run(label)
        params = {**run.params, **(params or {})}
        named = {"label": changed, "title": f"{run.title} ({what})", "notes": notes}
        return replace(run, params=params, **named, **changes)

    def _run(self, label: str) -> Run:
        title, method = METHODS[label]
        notes = NOTES.get(label, ())
        notes += PUBLISHED_NOTES.get(label, ()) if "main" in self.roles else ()
        notes += (self.unpublished[label],) if label in self.unpublished else ()
        return Run(
            federation=self.data.name,
            label=label,
            title=title,
            method=method,
            model=self.model,
            model_params=self.model_params,
            rounds=self.first or self.rounds + 1,  # the official loop has rounds 0 to R
            local=self._solver(label),
            params=self._params(label),
            participation=EVERYBODY,
            evaluate_every=self.evaluate_every,
            weights=self.weights,
            class_weights=self.class_weights,
            notes=notes,
        )

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
