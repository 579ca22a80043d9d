"""pFedMM: main table, unseen clients, and the effect of the number of experts.

Paper: "Mixture of Experts for Personalized Federated Learning under Mixture Data Distributions in
Edge Computing Networks".
Source of every value: the scripts of the official repository Archipes/pFedMM ("scripts" below),
which its README does not always match; of FedEM's, omarfoq/FedEM, where the former is silent.

Scales:
  demo     two small federations that need no download, with settings of ours
  reduced  EMNIST and CIFAR-10 as the paper cuts them, with fewer rounds and seeds
  full     the paper's settings, with three seeds instead of one
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fedlib.errors import ConfigError
from fedlib.spec import SCALES, Data, Figure, Paper, Run, Table

TITLE = "pFedMM"
CITATION = (
    "Mixture of Experts for Personalized Federated Learning under Mixture Data Distributions in "
    "Edge Computing Networks (official code: Archipes/pFedMM)"
)

PARTITION_SEED = 12345  # data scripts
TRAINING_SEED = 1234  # training scripts; the published numbers are of this one seed
TRAIN_FRACTION = 0.8  # data scripts, tr_frac
UNSEEN_FRACTION = 0.2  # data README, test_tasks_frac
ALPHA = 0.4  # data scripts
NUM_EXPERTS = 3  # training scripts, n_learners of FedEM and pFedMM
BATCH_SIZE = 128  # training scripts
WEIGHT_DECAY = 5e-4  # utils/optim.py, of every solver
MOMENTUM = 0.9  # utils/optim.py, of "sgd"; "prox_sgd" (FedProx) has none

# What each method is called, and its registry name; the order is that of the paper's table.
METHODS = {
    "local": ("Local", "local"),
    "fedavg": ("FedAvg", "fedavg"),
    "fedprox": ("FedProx", "fedprox"),
    "fedavg-plus": ("FedAvg+", "fedavg_plus"),
    "fedem": ("FedEM", "fedem"),
    "pfedmm": ("pFedMM", "pfedmm"),
}
MIXTURES = ("fedem", "pfedmm")  # methods whose number of experts is varied

# Training scripts: learning rates, and mu of FedProx.
EMNIST_RATES = {
    "local": 0.01,
    "fedavg": 0.01,
    "fedprox": 0.01,
    "fedavg-plus": 0.01,
    "fedem": 0.03,
    "pfedmm": 0.03,
}
CIFAR10_RATES = {
    "local": 0.03,
    "fedavg": 0.01,
    "fedprox": 0.01,
    "fedavg-plus": 0.001,
    "fedem": 0.03,
    "pfedmm": 0.03,
}
EMNIST_MU, CIFAR10_MU = 0.1, 1.0

TEST_SELECTION = (
    "The published numbers of the methods that the authors ran are the best round on the test "
    "data: compare them with the column of the best round."
)
FEDEM_IMPORTED = (
    "The published FedEM row equals the averages in FedEM's own README; the authors' FedEM curve "
    "ends lower (82.7 on EMNIST, 82.9 on CIFAR-10)."
)
ADAPTATION = (
    "The solver that fine-tunes FedAvg+ lives from one evaluation to the next, as in the official "
    "code, so its learning rate falls with the number of evaluations."
)


NOTES = {"fedem": (FEDEM_IMPORTED,), "fedavg-plus": (ADAPTATION,)}


@dataclass(frozen=True)
class Setting:
    """How the paper's methods are run on one federation.

    Attributes:
      data: the federation.
      model, model_params, weights: see `fedlib.spec.Run`.
      rounds: R; the official loop does one more.
      rates: learning rate of each method.
      mu: of FedProx.
      batch_size, drop_last: of the local solver.
      relu_logits: of pFedMM.
      num_experts: the values of E (the paper's M) that are compared.
      evaluate_every: rounds between evaluations.
    """

    data: Data
    model: str
    model_params: dict
    rounds: int
    rates: dict[str, float]
    mu: float
    num_experts: tuple[int, ...]
    batch_size: int = BATCH_SIZE
    drop_last: bool = False
    relu_logits: bool = False
    weights: str | None = None
    evaluate_every: int = 1

    def runs(self) -> Iterator[Run]:
        """Every method once, and the mixtures once more for every other number of experts."""
        for label in METHODS:
            yield self._run(label)
        for label in MIXTURES:
            for experts in self.num_experts:
                if experts != NUM_EXPERTS:
                    yield self._run(label, experts)

    def _run(self, label: str, experts: int = NUM_EXPERTS) -> Run:
        title, method = METHODS[label]
        default = experts == NUM_EXPERTS
        return Run(
            federation=self.data.name,
            label=label if default else f"{label}-m{experts}",
            title=title if default else f"{title} (M={experts})",
            method=method,
            model=self.model,
            model_params=self.model_params,
            rounds=self.rounds + 1,  # the official loop does rounds 0 to R
            local=self._solver(label),
            params=self._params(label, experts),
            evaluate_every=self.evaluate_every,
            weights=self.weights,
            notes=NOTES.get(label, ()) if default else (),
        )

    def _solver(self, label: str) -> dict:
        """Scripts: multi-step schedule with milestones at R/2 and 3R/4, counted in local epochs."""
        return {
            "solver": "sgd",
            "lr": self.rates[label],
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "momentum": 0.0 if label == "fedprox" else MOMENTUM,
            "weight_decay": WEIGHT_DECAY,
            "schedule": {
                "kind": "multi_step",
                "milestones": [self.rounds // 2, 3 * self.rounds // 4],
                "factor": 0.1,
                "by": "epoch",
            },
        }

    def _params(self, label: str, experts: int) -> dict:
        if label == "fedprox":
            return {"mu": self.mu}
        if label == "fedem":
            return {"num_experts": experts}
        if label == "pfedmm":
            return {"num_experts": experts, "relu_logits": self.relu_logits}
        return {}


def declare(scale: str) -> Paper:
    """The paper at one scale.

    Raises:
      ConfigError: for an unknown scale.
    """
    if scale not in SCALES:
        raise ConfigError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    note, seeds, settings = {"demo": _demo, "reduced": _reduced, "full": _full}[scale]()
    runs = tuple(run for setting in settings for run in setting.runs())
    federations = tuple(setting.data.name for setting in settings)
    return Paper(
        name="pfedmm",
        title=TITLE,
        citation=CITATION,
        scale=scale,
        scale_note=note,
        seeds=seeds,
        data=tuple(setting.data for setting in settings),
        runs=runs,
        tables=_tables(federations, runs),
        figures=_figures(federations, runs),
    )


def _demo() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """Small federations with settings of ours, chosen on seed 7, which is not shown."""
    digits = Data(
        name="digits",
        dataset="digits",
        params={
            "partition": {
                "kind": "dirichlet",
                "num_clients": 20,
                "alpha": ALPHA,
                "num_groups": 3,
            },
            "train_fraction": TRAIN_FRACTION,
            "unseen_fraction": UNSEEN_FRACTION,
            "seed": PARTITION_SEED,
        },
        title="Digits",
        partition="dirichlet0.4",
        notes=("Digits: scikit-learn's 1,797 handwritten digits; not a data set of the paper.",),
    )
    synthetic = Data(
        name="synthetic",
        dataset="synthetic",
        params={
            "num_clients": 20,
            "num_components": 3,
            "dim": 20,
            "test_size": 200,
            "alpha": ALPHA,
            "unseen_fraction": UNSEEN_FRACTION,
            "seed": PARTITION_SEED,
        },
        title="Synthetic",
        partition="mixture0.4",
        notes=(
            "Synthetic: FedEM's mixture of three linear models, with 20 clients and 20 dimensions; "
            "the paper reports nothing on it. With a linear model pFedMM has no body to share and "
            "is FedEM.",
        ),
    )
    small = {"mu": 0.1, "batch_size": 32, "num_experts": (2, 3, 4)}
    return (
        "demo: small federations that need no download and settings chosen for them; shows that "
        "everything runs, not what the paper claims.",
        (TRAINING_SEED, TRAINING_SEED + 1),
        (
            Setting(
                digits,
                model="mlp",
                model_params={"in_features": 64, "hidden": 64, "num_classes": 10},
                rounds=30,
                rates=dict.fromkeys(METHODS, 0.1) | {"fedprox": 0.3, "fedem": 0.3},
                **small,
            ),
            Setting(
                synthetic,
                model="linear",
                model_params={"in_features": 20, "num_classes": 2},
                rounds=40,
                rates=dict.fromkeys(METHODS, 0.3),
                **small,
            ),
        ),
    )


def _reduced() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """The real data sets, cut as in the paper, for a laptop."""
    emnist, cifar10 = _emnist(), _cifar10()
    test_split = replace(
        emnist.data,
        params={
            **emnist.data.params,
            "source": "test",
            # The paper's number of images; int() of this times 116,323 is 81,425.
            "fraction": 81_425.5 / 116_323,
        },
        notes=(
            "EMNIST: the 81,425 images are drawn from the official test split (116,323 images) "
            "instead of from both splits.",
        ),
    )
    random_weights = replace(
        cifar10.data,
        notes=(
            "CIFAR-10: MobileNet-v2 starts from random weights; the published numbers presuppose "
            "weights trained on ImageNet.",
        ),
    )
    few = {"num_experts": (NUM_EXPERTS,), "evaluate_every": 2}
    return (
        "reduced: the paper's partitions of the real data sets, with fewer rounds and one seed.",
        (TRAINING_SEED,),
        (
            replace(emnist, data=test_split, rounds=20, **few),
            replace(cifar10, data=random_weights, rounds=10, weights=None, **few),
        ),
    )


def _full() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """The paper's settings; it prints one seed, so that intervals are ours."""
    return (
        "full: the paper's data, partitions, models and hyper-parameters, with three seeds.",
        (TRAINING_SEED, TRAINING_SEED + 1, TRAINING_SEED + 2),
        (_emnist(), _cifar10()),
    )


def _emnist() -> Setting:
    """100 clients on a tenth of EMNIST byclass, a Dirichlet draw per class (data scripts)."""
    data = Data(
        name="emnist",
        dataset="emnist",
        params={
            "partition": {"kind": "dirichlet", "num_clients": 100, "alpha": ALPHA},
            "source": "all",
            "fraction": 0.1,
            "train_fraction": TRAIN_FRACTION,
            "unseen_fraction": UNSEEN_FRACTION,
            "seed": PARTITION_SEED,
        },
        title="EMNIST",
        partition="dirichlet0.4",
    )
    return Setting(
        data,
        model="emnist_cnn",
        model_params={"num_classes": 62},
        rounds=100,
        rates=EMNIST_RATES,
        mu=EMNIST_MU,
        relu_logits=True,  # learners_moe.py: the EMNIST expert ends in a ReLU
        num_experts=(2, 3, 4, 5, 6, 7),  # effect scripts
    )


def _cifar10() -> Setting:
    """80 clients on CIFAR-10, a Dirichlet draw per group of labels, of three (data scripts)."""
    data = Data(
        name="cifar10",
        dataset="cifar10",
        params={
            "partition": {"kind": "dirichlet", "num_clients": 80, "alpha": ALPHA, "num_groups": 3},
            "train_fraction": TRAIN_FRACTION,
            "unseen_fraction": UNSEEN_FRACTION,
            "seed": PARTITION_SEED,
        },
        title="CIFAR-10",
        partition="dirichlet0.4",
    )
    return Setting(
        data,
        model="mobilenet_v2",
        model_params={"num_classes": 10},
        weights="mobilenet_v2_weights",
        rounds=200,
        rates=CIFAR10_RATES,
        mu=CIFAR10_MU,
        drop_last=True,  # utils/utils.py, CIFAR loaders only
        num_experts=(2, 3, 4, 5, 6, 7),  # effect scripts
    )


def _tables(federations: tuple[str, ...], runs: tuple[Run, ...]) -> dict[str, Table]:
    tables = {
        "main": Table(
            kind="accuracy",
            title="Personalised accuracy",
            caption="Accuracy of the seen clients' own predictors on their own test shards: pooled "
            "over examples (All), and of the client at the lowest decile (Bottom-10%). "
            + TEST_SELECTION,
            labels=tuple(METHODS),
            federations=federations,
            published="main",
        ),
        "unseen": Table(
            kind="unseen",
            title="Clients that took no part in training",
            caption="Accuracy of unseen clients after adapting as their method allows: mixtures "
            "fit their weights in one E-step on the client's training examples (default) or carry "
            "them from evaluation to evaluation (carry); FedAvg+ fine-tunes. The paper claims up "
            "to 5.8 points over the baselines and prints no table.",
            labels=tuple(METHODS),
            federations=federations,
        ),
    }
    if labels := _swept(runs):
        tables["effect_of_experts"] = Table(
            kind="sweep",
            title="Effect of the number of experts",
            caption="Personalised accuracy of the seen clients for M experts. The paper's scripts "
            "run this experiment; its numbers are not public.",
            labels=labels,
            federations=federations,
            params={"parameter": "num_experts", "symbol": "M", "methods": list(MIXTURES)},
        )
    return tables


def _figures(federations: tuple[str, ...], runs: tuple[Run, ...]) -> dict[str, Figure]:
    figures = {
        "accuracy_over_rounds": Figure(
            kind="accuracy_over_rounds",
            title="Accuracy over rounds",
            caption="Personalised accuracy of the seen clients after each communication round. "
            "Dashes at the right of a panel mark where the paper's curves end.",
            labels=tuple(METHODS),
            federations=federations,
            published="curve-end",
        ),
        "client_accuracy": Figure(
            kind="client_accuracy_cdf",
            title="Accuracy client by client",
            caption="Share of clients whose accuracy is at most the value on the axis, last round.",
            labels=tuple(METHODS),
            federations=federations,
        ),
        "mixture_weights": Figure(
            kind="mixture_weights",
            title="Mixture weights",
            caption="How much of each expert a client's mixture uses, last round.",
            labels=MIXTURES,
            federations=federations,
        ),
        "accuracy_over_bytes": Figure(
            kind="accuracy_over_bytes",
            title="Accuracy over communication",
            caption="Personalised accuracy against what all clients together have sent and "
            "received, four bytes per number.",
            labels=tuple(METHODS),
            federations=federations,
        ),
    }
    if labels := _swept(runs):
        figures["effect_of_experts"] = Figure(
            kind="sweep",
            title="Effect of the number of experts",
            caption="Personalised accuracy of the seen clients against the number of experts M.",
            labels=labels,
            federations=federations,
            params={"parameter": "num_experts", "symbol": "M", "methods": list(MIXTURES)},
        )
    return figures


def _swept(runs: tuple[Run, ...]) -> tuple[str, ...]:
    """Labels of the runs that compare numbers of experts; none where only one was run."""
    labels = [run.label for run in runs if run.method in MIXTURES]
    return tuple(dict.fromkeys(labels)) if len(set(labels)) > len(MIXTURES) else ()
