"""The federations of the data sets in pFedMM and FedEM, and the settings of their runs.

"Scripts" and "data scripts" are those of the official repository Archipes/pFedMM; "FedEM's
scripts" those of omarfoq/FedEM.
"""

from collections.abc import Iterator
from dataclasses import replace

from fedlib.papers.pfedmm.settings import (
    ALPHA,
    FEDEM_README,
    METHODS,
    PUBLISHED,
    UNPUBLISHED,
    Setting,
)
from fedlib.papers.pfedmm.shakespeare_loss import CLASS_WEIGHTS
from fedlib.spec import Data

PARTITION_SEED = 12345  # data scripts
TRAIN_FRACTION = 0.8  # data scripts, tr_frac
SPLITS = {"train_fraction": TRAIN_FRACTION}
ALPHAS = (0.1, 0.2, ALPHA, 1.0, 10.0, 1e6)  # 0.4 and 1e6: effect scripts; the others are ours
EXPERTS = (2, 3, 4, 5, 6, 7)  # effect scripts

# Training scripts: learning rates. Of the methods without a script: FedAvg's.
EMNIST_RATES = dict.fromkeys(METHODS, 0.01) | dict.fromkeys(
    ("fedem", "gated-experts", "pfedmm"), 0.03
)
CIFAR10_RATES = EMNIST_RATES | {
    "local": 0.03,
    "fedavg-plus": 0.001,
    "clustered": 0.003,
    "pfedme": 0.001,
}
CIFAR100_RATES = EMNIST_RATES | {"fedavg-plus": 0.001, "pfedme": 0.001}
# FedEM's scripts; pFedMM and its mixture have FedEM's rates, other methods without a script have
# FedAvg's.
FEMNIST_RATES = dict.fromkeys(METHODS, 0.03) | {"local": 0.01, "clustered": 0.01, "fedprox": 0.05}
SHAKESPEARE_RATES = dict.fromkeys(METHODS, 0.01) | dict.fromkeys(("fedem", "pfedmm"), 0.05)

NOT_IN_FEDEM = ("gated-experts", "pfedmm", *UNPUBLISHED)
UNSEEN = ("fedavg", "fedavg-plus", "fedem", "pfedmm")  # if not all methods of the paper are run
EXPERIMENTS = {  # at scale full, on the data sets of the paper
    "num_experts": EXPERTS,
    "participation": True,
    "alphas": ALPHAS,
    "unseen": tuple(PUBLISHED),
}


# -- data sets of pFedMM ------------------------------------------------------------------


def emnist() -> Setting:
    """100 clients on a tenth of EMNIST byclass, a Dirichlet draw per class (data scripts)."""
    data = Data(
        name="emnist",
        dataset="emnist",
        params={"source": "all"},
        partition={
            "kind": "dirichlet",
            "num_clients": 100,
            "alpha": ALPHA,
            "fraction": 0.1,
            **SPLITS,
        },
        seed=PARTITION_SEED,
        title="EMNIST",
        partition_label="dirichlet0.4",
    )
    return Setting(
        data=data,
        model="emnist_cnn",
        model_params={"num_classes": 62},
        rounds=100,
        rates=EMNIST_RATES,
        fedprox_mu=0.1,  # training scripts
        gate_features=28 * 28,
        relu_logits=True,  # learners_moe.py: the EMNIST expert ends in a ReLU
        ablations=("no-relu", "body-rate", "uniform-prior"),
        **EXPERIMENTS,
    )


def cifar10() -> Setting:
    """80 clients on CIFAR-10, a Dirichlet draw per group of labels, of three (data scripts)."""
    data = Data(
        name="cifar10",
        dataset="cifar10",
        partition={
            "kind": "dirichlet",
            "num_clients": 80,
            "alpha": ALPHA,
            "num_groups": 3,
            "min_examples": 3,  # ours: the smallest client has 8 at alpha 0.4, but 2 at 0.2
            **SPLITS,
        },
        seed=PARTITION_SEED,
        title="CIFAR-10",
        partition_label="dirichlet0.4",
    )
    return Setting(
        data=data,
        model="mobilenet_v2",
        model_params={"num_classes": 10},
        weights="mobilenet_v2_weights",
        rounds=200,
        rates=CIFAR10_RATES,
        fedprox_mu=1.0,  # training scripts
        gate_features=3 * 32 * 32,
        drop_last=True,  # utils/utils.py, CIFAR loaders only
        ablations=("relu", "body-rate", "uniform-prior", "private-norms"),
        **EXPERIMENTS,
    )


def cifar100() -> Setting:
    """100 clients of 600 images on CIFAR-100, by Pachinko allocation (data scripts)."""
    data = Data(
        name="cifar100",
        dataset="cifar100",
        partition={
            "kind": "pachinko",
            "num_clients": 100,
            "alpha": ALPHA,
            "beta": 10.0,
            **SPLITS,
        },
        seed=PARTITION_SEED,
        title="CIFAR-100",
        partition_label="pachinko0.4",
    )
    return replace(
        cifar10(),
        data=data,
        model_params={"num_classes": 100},
        rates=CIFAR100_RATES,
        fedprox_mu=0.1,  # training scripts
    )


def as_fedem() -> Iterator[Setting]:
    """The same clients, with the settings of the numbers in FedEM's README."""
    scripts = (  # FedEM's: rounds, log_freq, learning rate of FedEM
        (emnist(), 200, 5, 0.05),
        (cifar10(), 200, 10, 0.03),
        (cifar100(), 200, 5, 0.01),
    )
    for setting, rounds, every, rate in scripts:
        title = setting.data.title
        named = {"name": f"{setting.data.name}-fedem", "title": f"{title}, FedEM's settings"}
        yield setting.alone(
            replace(setting.data, **named, family=title),
            FEDEM_README,
            "fedem-settings",
            rounds=rounds,
            evaluate_every=every,
            rates=setting.rates | {"fedem": rate},
        )


# -- data sets of FedEM -------------------------------------------------------------------


def not_run(title: str, settings: str) -> dict[str, str]:
    """The note on methods that no code base runs on this data set."""
    note = f"Not run on {title} by its authors, and no number is published; {settings}."
    return dict.fromkeys(NOT_IN_FEDEM, note)


def femnist() -> Setting:
    """A client per writer, 15 % of the writers (FedEM's data README and scripts)."""
    data = Data(
        name="femnist",
        dataset="femnist",
        params={"source": "nist"},
        partition={"kind": "writer", "fraction": 0.15, "unseen": "last", **SPLITS},
        seed=PARTITION_SEED,
        title="FEMNIST",
        partition_label="writer",
    )
    return emnist().alone(
        data,
        tuple(METHODS),
        "fedem-readme",
        rounds=200,
        rates=FEMNIST_RATES,
        fedprox_mu=0.05,  # FedEM's scripts
        pfedme_mu=10.0,  # FedEM's scripts
        evaluate_every=5,  # FedEM's scripts, log_freq
        unpublished=not_run("FEMNIST", "the learning rate is FedEM's"),
        unseen=UNSEEN,
    )


def shakespeare() -> Setting:
    """A client per role with more than two lines (FedEM's data README and scripts)."""
    data = Data(
        name="shakespeare",
        dataset="shakespeare",
        params={"train_fraction": TRAIN_FRACTION},
        partition={"kind": "natural", "order": "random"},
        seed=PARTITION_SEED,
        title="Shakespeare",
        partition_label="role",
    )
    return Setting(
        data=data,
        model="char_lstm",
        model_params={"num_classes": 100},
        class_weights=CLASS_WEIGHTS,
        rounds=200,
        rates=SHAKESPEARE_RATES,
        fedprox_mu=0.1,  # FedEM's scripts
        gate_features=0,
        evaluate_every=5,  # FedEM's scripts, log_freq
        # The gate of the mixture is for pixels: it has no meaning for characters.
        labels=tuple(label for label in METHODS if label != "gated-experts"),
        roles=("fedem-readme",),
        unpublished=not_run("Shakespeare", "the learning rate is FedEM's"),
        unseen=UNSEEN,
    )
