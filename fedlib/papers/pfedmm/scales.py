"""The federations of pFedMM at every scale, and how they are trained on.

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
    TRAINING_SEED,
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
# FedEM's scripts; pFedMM and its mixture have FedEM's, other methods without a script FedAvg's.
FEMNIST_RATES = dict.fromkeys(METHODS, 0.03) | {"local": 0.01, "clustered": 0.01, "fedprox": 0.05}
SHAKESPEARE_RATES = dict.fromkeys(METHODS, 0.01) | dict.fromkeys(("fedem", "pfedmm"), 0.05)

NOT_IN_FEDEM = ("gated-experts", "pfedmm", *UNPUBLISHED)
UNSEEN = ("fedavg", "fedavg-plus", "fedem", "pfedmm")  # where not all methods of the paper are run
EXPERIMENTS = {  # at scale full, on the data sets of the paper
    "num_experts": EXPERTS,
    "participation": True,
    "alphas": ALPHAS,
    "unseen": tuple(PUBLISHED),
}


def demo() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """Of `demo_all`, every method and every experiment once, and two thirds of the rounds."""
    note, seeds, (digits, synthetic) = demo_all()
    few = {"ablations": ("relu",), "alpha_labels": ("fedavg", "pfedmm"), "rounds": 20}
    linear = {"labels": ("fedavg", "fedem", "pfedmm"), "rounds": 20}
    return note, seeds[:1], (replace(digits, **few), replace(synthetic, **linear))


def demo_all() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """Small federations with settings of ours, chosen on seed 7, which is not shown."""
    digits = Data(
        name="digits",
        dataset="digits",
        partition={
            "kind": "dirichlet",
            "num_clients": 20,
            "alpha": ALPHA,
            "num_groups": 3,
            **SPLITS,
        },
        seed=PARTITION_SEED,
        title="Digits",
        partition_label="dirichlet0.4",
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
        },
        partition={"kind": "natural", "val_fraction": 0.0},
        seed=PARTITION_SEED,
        title="Synthetic",
        partition_label="mixture0.4",
        notes=(
            "Synthetic: FedEM's mixture of three linear models, with 20 clients and 20 dimensions; "
            "the paper reports nothing on it. With a linear model pFedMM has no body to share and "
            "is FedEM.",
        ),
    )
    small = {"fedprox_mu": 0.1, "batch_size": 32}
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
                gate_features=64,
                num_experts=(2, 3, 4),
                participation=True,
                ablations=("relu", "body-rate", "uniform-prior"),
                alphas=(0.1, ALPHA, 1e6),
                alpha_labels=("fedavg", "fedem", "pfedmm"),
                left_out={0.1: 1},
                unseen=UNSEEN[1:],
                **small,
            ),
            Setting(
                synthetic,
                model="linear",
                model_params={"in_features": 20, "num_classes": 2},
                rounds=40,
                rates=dict.fromkeys(METHODS, 0.3),
                gate_features=20,
                labels=tuple(PUBLISHED),
                roles=("fedem-readme",),
                **small,
            ),
        ),
    )


def reduced() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """The real data sets, cut as in the paper, for a laptop."""
    emnist, cifar10, femnist = _emnist(), _cifar10(), _femnist()
    test_split = replace(
        emnist.data,
        params={"source": "test"},
        # The paper's number of images; int() of this times 116,323 is 81,425.
        partition={**emnist.data.partition, "fraction": 81_425.5 / 116_323},
        notes=(
            "EMNIST: the 81,425 images are drawn from the official test split (116,323 images) "
            "instead of from both splits.",
        ),
    )
    random_weights = replace(
        cifar10.data,
        notes=(
            "CIFAR-10: MobileNet-v2 starts from random weights; the published numbers presuppose "
            "weights trained on ImageNet. Its running statistics then take some sixty local steps "
            "to settle, and accuracy stays near chance until they have: batches have 32 examples "
            "instead of 128, so that a round has four times the steps.",
        ),
    )
    hundred = replace(
        femnist.data,
        partition={**femnist.data.partition, "fraction": 1.0, "num_clients": 100},
        notes=("FEMNIST: 100 writers; FedEM takes 15 % of the 3,597, which is 539.",),
    )
    fedem, fewest = (*FEDEM_README, "pfedmm"), ("local", "fedavg", "pfedmm")
    return (
        "reduced: the first rounds of the papers' runs on the real data sets, with the papers' "
        "partitions and learning rates.",
        (TRAINING_SEED,),
        (
            emnist.alone(
                test_split, tuple(PUBLISHED), "main", first=11, evaluate_every=2, unseen=UNSEEN
            ),
            femnist.alone(hundred, fedem, "fedem-readme", first=13, evaluate_every=2),
            cifar10.alone(random_weights, fewest, "main", first=4, weights=None, batch_size=32),
        ),
    )


def full() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """The paper's settings; it prints one seed, so that intervals are ours."""
    return (
        "full: the paper's data, partitions, models and hyper-parameters.",
        (TRAINING_SEED, TRAINING_SEED + 1, TRAINING_SEED + 2),
        (
            *(_emnist(), _cifar10(), _cifar100()),
            *(_femnist(), _shakespeare(), _synthetic(), _mnist()),
            *_as_fedem(),
        ),
    )


# -- data sets that pFedMM reports on -----------------------------------------------------


def _emnist() -> Setting:
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
        data,
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


def _cifar10() -> Setting:
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
        data,
        model="mobilenet_v2",
        model_params={"num_classes": 10},
        weights="mobilenet_v2_weights",
        rounds=200,
        rates=CIFAR10_RATES,
        fedprox_mu=1.0,  # training scripts
        gate_features=3 * 32 * 32,
        drop_last=True,  # utils/utils.py, CIFAR loaders only
        left_out={0.1: 8, 0.2: 3},
        ablations=("relu", "body-rate", "uniform-prior", "private-norms"),
        **EXPERIMENTS,
    )


def _cifar100() -> Setting:
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
        _cifar10(),
        data=data,
        model_params={"num_classes": 100},
        rates=CIFAR100_RATES,
        fedprox_mu=0.1,  # training scripts
        left_out={},  # all clients have as many images
    )


def _as_fedem() -> Iterator[Setting]:
    """The same clients, with the settings that FedEM's README printed its numbers for."""
    scripts = (  # FedEM's: rounds, log_freq, learning rate of FedEM
        (_emnist(), 200, 5, 0.05),
        (_cifar10(), 200, 10, 0.03),
        (_cifar100(), 200, 5, 0.01),
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


# -- data sets that FedEM reports on, and writers of MNIST --------------------------------


def _not_run(title: str, settings: str) -> dict[str, str]:
    """The note on methods for which no code base has this data set."""
    note = f"Not run on {title} by its authors, and no number is published; {settings}."
    return dict.fromkeys(NOT_IN_FEDEM, note)


def _femnist() -> Setting:
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
    return _emnist().alone(
        data,
        tuple(METHODS),
        "fedem-readme",
        rounds=200,
        rates=FEMNIST_RATES,
        fedprox_mu=0.05,  # FedEM's scripts
        pfedme_mu=10.0,  # FedEM's scripts
        evaluate_every=5,  # FedEM's scripts, log_freq
        unpublished=_not_run("FEMNIST", "the learning rate is FedEM's"),
        unseen=UNSEEN,
    )


def _shakespeare() -> Setting:
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
        data,
        model="char_lstm",
        model_params={"num_classes": 100},
        class_weights=CLASS_WEIGHTS,
        rounds=200,
        rates=SHAKESPEARE_RATES,
        fedprox_mu=0.1,  # FedEM's scripts
        gate_features=0,
        evaluate_every=5,  # FedEM's scripts, log_freq
        # The gate of the mixture reads pixels: it has no meaning for characters.
        labels=tuple(label for label in METHODS if label != "gated-experts"),
        roles=("fedem-readme",),
        unpublished=_not_run("Shakespeare", "the learning rate is FedEM's"),
        unseen=UNSEEN,
    )


def _synthetic() -> Setting:
    """300 clients, each a mixture of three linear models (FedEM's data README)."""
    data = Data(
        name="synthetic",
        dataset="synthetic",
        params={
            "num_clients": 300,
            "num_components": 3,
            "dim": 150,
            "test_size": 5000,
            "alpha": ALPHA,
        },
        partition={"kind": "natural", "val_fraction": 0.0},
        seed=PARTITION_SEED,
        title="Synthetic",
        partition_label="mixture0.4",
    )
    note = (
        "No code base has a script for the synthetic data, and no number is published; settings "
        "are ours. With a linear model pFedMM has no body to share and is FedEM."
    )
    return Setting(
        data,
        model="linear",
        model_params={"in_features": 150, "num_classes": 2},
        rounds=200,
        rates=dict.fromkeys(METHODS, 0.1),
        fedprox_mu=0.1,
        gate_features=150,
        evaluate_every=5,
        roles=("fedem-readme",),
        unpublished=dict.fromkeys(METHODS, note),
        unseen=UNSEEN,
    )


def _mnist() -> Setting:
    """A client per writer of MNIST: the 539 of the training set are seen, 297 others unseen."""
    data = Data(
        name="mnist",
        dataset="mnist",
        params={"source": "qmnist"},
        partition={"kind": "writer", "unseen": "test_part", "train_fraction": TRAIN_FRACTION},
        seed=PARTITION_SEED,
        title="MNIST",
        partition_label="writer",
    )
    note = (
        "MNIST by writer is ours: no paper runs it. Settings are those of FEMNIST. The writers of "
        "its test set are unseen in every table."
    )
    return _femnist().alone(
        data,
        tuple(METHODS),
        "fedem-readme",
        model_params={"num_classes": 10},
        unpublished=dict.fromkeys(METHODS, note),
    )
