"""The federations of the data sets in pFedMM and FedEM, and the settings of their runs.

"Scripts" and "data scripts" are those of the official repository Archipes/pFedMM; "FedEM's
scripts" those of omarfoq/FedEM. README.md has their values in sections 3.2, 6.1 and 6.2.
"""

from collections.abc import Iterator
from dataclasses import replace

from fedlib.papers.pfedmm import settings
from fedlib.papers.pfedmm.settings import Setting, of_experts
from fedlib.papers.pfedmm.shakespeare_loss import CLASS_WEIGHTS
from fedlib.spec import Data

Labels = tuple[str, ...]
PARTITION_SEED = 12345  # data scripts
SPLITS = {"train_fraction": 0.8}  # data scripts, tr_frac
ALPHAS = (0.1, 0.2, 1.0, 10.0, 1e6)  # besides 0.4; 1e6: effect scripts; the others are ours

CLUSTERED = ("clustered-coordinate", "clustered")
# Training scripts: learning rates. Of the methods without a script: FedAvg's.
EMNIST_RATES = dict.fromkeys(settings.METHODS, 0.01)
EMNIST_RATES |= dict.fromkeys(("fedem", "gated-experts", "pfedmm"), 0.03)
CIFAR10_RATES = EMNIST_RATES | {"local": 0.03, "fedavg-plus": 0.001, "pfedme": 0.001}
CIFAR10_RATES |= dict.fromkeys(CLUSTERED, 0.003)
CIFAR100_RATES = EMNIST_RATES | {"fedavg-plus": 0.001, "pfedme": 0.001}
# FedEM's scripts; pFedMM and its mixture have FedEM's rates, other methods without a script have
# FedAvg's.
FEMNIST_RATES = dict.fromkeys(settings.METHODS, 0.03) | {"fedprox": 0.05}
FEMNIST_RATES |= dict.fromkeys(("local", *CLUSTERED), 0.01)
SHAKESPEARE_RATES = dict.fromkeys(settings.METHODS, 0.01) | dict.fromkeys(("fedem", "pfedmm"), 0.05)

UNSEEN = ("fedavg", "fedavg-plus", "fedem", "pfedmm")  # if not all methods of the paper are run


def data(name: str, title: str, label: str, partition: dict, **about) -> Data:
    """A data set, cut with the seed of the data scripts; `label` names the partition."""
    return Data(name, name, partition, PARTITION_SEED, title, label, **about)


def dirichlet(num_clients: int, **about: float) -> dict:
    """Dirichlet draws, per class or per group of labels."""
    sizes = {"num_clients": num_clients, "alpha": settings.ALPHA}
    return {"kind": "dirichlet", **sizes, **about, **SPLITS}


# -- data sets of pFedMM ------------------------------------------------------------------

EMNIST = Setting(  # a tenth of EMNIST byclass, a draw per class (data scripts)
    data=data(
        "emnist", "EMNIST", "dirichlet0.4", dirichlet(100, fraction=0.1), params={"source": "all"}
    ),
    model="emnist_cnn",
    model_params={"num_classes": 62},
    rounds=100,  # training scripts
    rates=EMNIST_RATES,
    fedprox_mu=0.1,  # training scripts
    gate_features=28 * 28,
    relu_logits=True,  # learners_moe.py: the EMNIST expert ends in a ReLU
    labels=(
        *(*settings.METHODS, *of_experts(*settings.EXPERTS), *settings.AT_RATES),
        *("pfedmm-no-relu", "pfedmm-body-rate", "pfedmm-uniform-prior"),
        *settings.PARTICIPATION,
    ),
)
CIFAR10 = Setting(  # a draw per group of labels, of three (data scripts)
    # `min_examples` is ours: the smallest client has 8 at alpha 0.4, but 2 at 0.2.
    data=data("cifar10", "CIFAR-10", "dirichlet0.4", dirichlet(80, num_groups=3, min_examples=3)),
    model="mobilenet_v2",
    model_params={"num_classes": 10},
    weights="mobilenet_v2_weights",
    rounds=200,  # training scripts
    rates=CIFAR10_RATES,
    fedprox_mu=1.0,  # training scripts
    gate_features=3 * 32 * 32,
    drop_last=True,  # utils/utils.py, CIFAR loaders only
    labels=(
        *(*settings.METHODS, *of_experts(*settings.EXPERTS)),
        *("pfedmm-relu", "pfedmm-body-rate", "pfedmm-uniform-prior"),
        *settings.PARTICIPATION,
    ),
)
PACHINKO = {"kind": "pachinko", "num_clients": 100, "alpha": settings.ALPHA, "beta": 10.0, **SPLITS}
CIFAR100 = replace(  # 100 clients of 600 images (data scripts)
    CIFAR10,
    data=data("cifar100", "CIFAR-100", "pachinko0.4", PACHINKO),
    model_params={"num_classes": 100},
    rates=CIFAR100_RATES,
    fedprox_mu=0.1,  # training scripts
)


def beside(
    setting: Setting, end: str, what: str, role: str, labels: Labels, data: dict, **changes
) -> Setting:
    """The setting on a federation of the same family.

    Args:
      end, what: ends of its name and of its title.
      role, labels: of the setting.
      data: changed fields of the federation.
      changes: to the setting.
    """
    name, title = setting.data.name, setting.data.title
    named = {"name": f"{name}-{end}", "title": f"{title}, {what}", "family": title}
    other = replace(setting.data, **named, **data)
    return replace(setting, data=other, labels=labels, roles=(role,), **changes)


def as_fedem(setting: Setting, rounds: int, log_freq: int, rate: float) -> Setting:
    """The same clients, with the settings of FedEM's scripts, and its learning rate."""
    return beside(
        *(setting, "fedem", "FedEM's settings", "fedem-settings", settings.FEDEM_README, {}),
        rounds=rounds,
        evaluate_every=log_freq,
        rates=setting.rates | {"fedem": rate},
    )


def with_unseen(setting: Setting, labels: Labels) -> Setting:
    """These methods with a part of the clients unseen."""
    partition = {**setting.data.partition, "unseen_fraction": settings.UNSEEN_FRACTION}
    what = f"{settings.UNSEEN_FRACTION:.0%} unseen"
    return beside(setting, "unseen", what, "unseen", labels, {"partition": partition})


def with_alphas(setting: Setting, alphas: tuple[float, ...], labels: Labels) -> Iterator[Setting]:
    """These methods with other concentrations of the partition."""
    for alpha in alphas:
        short = f"{alpha:g}".replace("e+0", "e")  # 1e6
        partition = {**setting.data.partition, "alpha": alpha}
        dealt = {"partition": partition, "partition_label": f"{partition['kind']}{short}"}
        yield beside(setting, f"alpha{short}", f"α={short}", "heterogeneity", labels, dealt)


AS_FEDEM = (
    as_fedem(EMNIST, 200, 5, 0.05),
    as_fedem(CIFAR10, 200, 10, 0.03),
    as_fedem(CIFAR100, 200, 5, 0.01),
)


# -- data sets of FedEM -------------------------------------------------------------------


NOT_CORRECTED = tuple(label for label in settings.METHODS if label not in settings.CORRECTED)
# A client per writer, 15 % of the writers (FedEM's data README and scripts).
WRITERS = {"kind": "writer", "fraction": 0.15, "unseen": "last", **SPLITS}
FEMNIST = replace(
    EMNIST,
    data=data("femnist", "FEMNIST", "writer", WRITERS, params={"source": "nist"}),
    labels=NOT_CORRECTED,
    roles=("fedem-readme",),
    rounds=200,  # FedEM's scripts
    rates=FEMNIST_RATES,
    fedprox_mu=0.05,  # FedEM's scripts
    pfedme_mu=10.0,  # FedEM's scripts
    evaluate_every=5,  # FedEM's scripts, log_freq
    of_fedem=True,
)
# A client per role with more than two lines (FedEM's data README and scripts).
ROLES = {"kind": "natural", "order": "random"}
SHAKESPEARE = Setting(
    data=data("shakespeare", "Shakespeare", "role", ROLES, params=SPLITS),
    model="char_lstm",
    model_params={"num_classes": 100},
    class_weights=CLASS_WEIGHTS,
    rounds=200,  # FedEM's scripts
    rates=SHAKESPEARE_RATES,
    fedprox_mu=0.1,  # FedEM's scripts
    gate_features=0,
    evaluate_every=5,  # FedEM's scripts, log_freq
    # The gate of the mixture is for pixels: it has no meaning for characters.
    labels=tuple(label for label in NOT_CORRECTED if label != "gated-experts"),
    roles=("fedem-readme",),
    of_fedem=True,
)
