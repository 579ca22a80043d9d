"""The federations and runs of Fed-MoE at every scale.

Sections are those of README.md. The server trains, validates and tests on data of its own. There is
a probe for preset "code" alone, which measures relevance on other examples than the gate's training
examples.
"""

from dataclasses import replace

from fedlib.papers._frame import DIGITS_NOTE, Scale
from fedlib.papers.fedmoe import settings
from fedlib.papers.fedmoe.federations import DATASETS, Labels, of_classes, of_writers, setting_of
from fedlib.papers.fedmoe.settings import Networks, Setting

SEEDS = (0, 1, 2)  # ours; the paper does not state its number of repetitions
MAJORITY = 0.6  # of the skewed reserved data (Figure 4)
IN_ALL = 37_500  # training images of all clients of CIFAR-10 (section 0)
SKEWED = ("avg-moe", "fedmoe")  # methods of Figure 4
TEXT_NOTE = "texts of five classes, made up here; not a data set of the paper."


# -- demo ---------------------------------------------------------------------------------

QUICK = {  # our rates, for visible effects in few rounds; lambda moves experts half way
    "rounds": 4,
    "cohort": 3,
    "local": {"lr": 3e-3, "batch_size": 16, "epochs": 2},
    "server": {"lr": 3e-4, "batch_size": 16, "epochs": 2},
    "params": {"lam": 0.5, "alpha_lr_scale": 10.0},
    "evaluate_every": 2,
    "preset": "femnist",
}
DEMO = (
    *(*settings.PRINTED, *settings.OURS, "fedrolex", *settings.PARTS, "fedmoe-beta-1e-1"),
    *("fedmoe-main-0", "avg-moe-k3", "fedmoe-wc-paper", "fedmoe-code", *settings.WARM),
)
# Roles of the federation with all ablations.
IN_ONE = ("experts", "betas", "mixtures", "alone", "kept")


def demo() -> Scale:
    """Digits and synthetic texts in place of all data sets, each method once."""
    return (
        "demo: 1,797 digits and made-up texts, small networks and a few rounds; shows that "
        "everything runs, not what the paper claims.",
        (0,),
        (
            _digits(6, DEMO, ("main", "size", *IN_ONE, "reserved", "even", "written")),
            _digits(12, ("fedavg", "fedmoe"), ("main",)),
            _digits(6, ("fedmoe",), ("reserved",), server_per_class=3),
            # There are too few digits for a skewed probe as well.
            _digits(6, ("fedmoe",), ("skewed",), majority=MAJORITY, probe_per_class=0),
            setting_of(
                *("text", {"kind": "natural"}, ("fedavg", "fedmoe"), ("main", "size")),
                notes=(TEXT_NOTE,),
                **QUICK,
            ),
        ),
    )


def _digits(num_clients: int, labels: Labels, roles: Labels, **reserved) -> Setting:
    partition = {
        **{"kind": "server_equal", "num_clients": num_clients, "pool_per_class": 60},
        **{"train_examples": 540 // num_clients, "val_per_class": 10, "server_per_class": 10},
        **{"probe_per_class": 5, **reserved},
    }
    # At the rate of the texts FedAvg of 12 clients is at chance after these rounds.
    quick = QUICK | {"local": QUICK["local"] | {"lr": 1e-2}}
    return setting_of("digits", partition, labels, roles, notes=(DIGITS_NOTE,), **quick)


# -- reduced ------------------------------------------------------------------------------

REPLACED = {"lam": 1.0, "client_lam": 0.0}  # as in the released code on FEMNIST (section 3.1)
LITE = (
    *(*settings.PRINTED, *settings.OURS, *settings.PARTS, "fedmoe-beta-1e-1"),
    *("fedmoe-main-0", "fedmoe-main-2", "avg-moe-k5", *(f"fedmoe-k{n}" for n in settings.FEWER)),
    *("fedmoe-lambda-0.1", "fedmoe-lambda-0.5", "fedmoe-lambda-1", "fedmoe-fixed-alpha"),
    *(*settings.WEIGHTS, *settings.GATES, *settings.WARM),
)


def reduced() -> Scale:
    """Real CIFAR-10 and LEAF's FEMNIST with the `lite` settings of section 5.2."""
    few = ("fedavg", "fedprox", "avg-moe", "fedmoe", "fedmoe-fresh")
    more = (*few, "centmoe", "fedmoe-lambda-0.5")
    return (
        "reduced: the real CIFAR-10 and LEAF's FEMNIST with narrow networks, few examples and "
        "rounds.",
        (0,),
        (
            _femnist_lite(10, 5, 15, LITE, ("main", "size", *IN_ONE, "reserved", "written")),
            _femnist_lite(50, 1, 30, (*settings.PRINTED, "fedmoe-fresh"), ("main",)),
            _femnist_lite(10, 5, 15, ("fedmoe",), ("reserved",), server_examples=320),
            # FedJETs and the parts of the method take an hour here, so only FEMNIST has them.
            _cifar10_lite(10, more, ("main", "even", "written")),
            _cifar10_lite(50, few, ("main",)),
            _cifar10_lite(100, ("fedavg", "fedmoe", "fedmoe-fresh"), ("main",)),
            # Avg-MoE does not use the skewed data.
            _cifar10_lite(10, ("fedmoe",), ("skewed",), majority=MAJORITY),
        ),
    )


def _narrow(dataset: str, width: int) -> Networks:
    networks = DATASETS[dataset].networks
    return replace(networks, size={**networks.size, networks.width: width})


def _femnist_lite(
    num_clients: int, writers: int, rounds: int, labels: Labels, roles: Labels, **reserved
) -> Setting:
    fewer = {"server_examples": 640, "val_fraction": 0.05, **reserved}
    return setting_of(
        *("femnist", of_writers(num_clients, writers, **fewer), labels, roles),
        networks=_narrow("femnist", 256),
        notes=(
            f"clients of {writers} writer{'s' * (writers > 1)} instead of 30, "
            f"{fewer['server_examples']} reserved examples instead of 1,280, a hidden layer of 256 "
            f"instead of 2,048; {rounds} rounds of 1 epoch instead of 100 of 5. So that experts "
            "leave their first draw in these rounds, they and clients take all from each other, as "
            "in the released code on FEMNIST (λ = 1 for experts, 0 for clients); clients have "
            "three times the rate, and the gate has ten times.",
        ),
        rounds=rounds,
        local={"lr": 1e-3, "epochs": 1},
        server={"lr": 3e-4},
        params=REPLACED,
        evaluate_every=1,
    )


def _cifar10_lite(num_clients: int, labels: Labels, roles: Labels, **reserved) -> Setting:
    fewer = {"train_examples": 375, "server_per_class": 20, "val_per_class": 50}
    partition = of_classes(num_clients, **fewer, test_per_class=200, **reserved)
    return setting_of(
        *("cifar10", partition, labels, roles),
        networks=_narrow("cifar10", 16),
        notes=(
            "375 images per client, 200 reserved instead of 1,000, 500 to validate on and 2,000 to "
            "test on instead of 10,000; a ResNet-18 of width 16 instead of 64; 8 rounds of one "
            "inner step instead of 100 of five. So that experts leave their first draw in these "
            "rounds, λ is 1 for experts and 0 for clients, as in the released code on FEMNIST.",
        ),
        rounds=8,
        server={"schedule": {"kind": "cosine", "period": 8 * 5}},
        params={"inner_steps": 1, **REPLACED},
        evaluate_every=1,
    )


# -- full ---------------------------------------------------------------------------------

EVERYTHING = (*settings.PRINTED, *settings.OURS)
# Without CentMoE, which has the server's data of M = 50 and is trained there.
WITH_CLIENTS = tuple(label for label in EVERYTHING if label != "centmoe")
ON_FEMNIST = (
    *(*EVERYTHING, *settings.PARTS, "fedmoe-beta-1e-1"),
    *(*(f"fedmoe-main-{n}" for n in settings.MAINS), *settings.WEIGHTS, "avg-moe-k5"),
    *(x for x in settings.STEPS if x != "fedmoe-lambda-0.1"),
    *(f"fedmoe-k{n}" for n in settings.FEWER),
    *(f"{method}-k{num}" for num in settings.EXPERTS for method in ("fedmoe", "avg-moe")),
)
WITH_BETA = tuple(f"fedmoe-beta-{beta}" for beta in settings.BETAS)
ON_CIFAR10 = (*EVERYTHING, *settings.PARTS, *WITH_BETA, *settings.WEIGHTS)
OF_THE_CODE = {  # unequal clients, 10,000 images for the gate, 200 for relevance (section 4.2)
    **{"kind": "server_dirichlet", "num_clients": 50, "pool_per_class": 3480, "alpha": 1.0},
    **{"probe_per_class": 20, "val_per_class": 500, "server_per_class": 1000},
}


def full() -> Scale:
    """Data and networks of section 0, rounds and rates of section 3.1."""
    written, more = ("reserved", "written"), ("mixtures", "alone", "kept")
    mains = tuple(f"fedmoe-main-{n}" for n in settings.MAINS)
    return (
        "full: the paper's data sets, networks and federations with the released code's rounds "
        "and rates, as the paper prints none.",
        SEEDS,
        (
            _femnist(10, EVERYTHING, ("main",)),
            _femnist(50, ON_FEMNIST, ("main", "size", "experts", *more, *written)),
            _femnist(100, EVERYTHING, ("main",)),
            _cifar10(10, WITH_CLIENTS, ("main",)),
            _cifar10(50, ON_CIFAR10, ("main", "betas", *more, *written)),
            _cifar10(100, (*WITH_CLIENTS, "fedrolex"), ("main",)),
            *(_femnist(50, ("fedmoe",), ("reserved",), server_examples=n) for n in (320, 640)),
            *(_cifar10(50, ("fedmoe",), ("reserved",), server_per_class=n) for n in (25, 50)),
            # All examples of ten writers for the gate, another writer for relevance (section 4.1).
            _femnist(50, settings.GATES, ("gates",), server_examples=None),
            setting_of("cifar10", OF_THE_CODE, settings.GATES, ("gates",)),
            _sent140(10, WITH_CLIENTS, ("main",)),
            _sent140(50, (*EVERYTHING, *mains), ("main", "even", "written")),
            _sent140(100, WITH_CLIENTS, ("main",)),
            _sent140(50, SKEWED, ("skewed",), majority=MAJORITY),
            _yelp(10, WITH_CLIENTS, ("main",)),
            _yelp(50, (*EVERYTHING, *settings.WARM), ("main", "size", "even", "written")),
            _yelp(100, WITH_CLIENTS, ("main",)),
            _yelp(50, SKEWED, ("skewed",), majority=MAJORITY),
        ),
    )


def _femnist(num_clients: int, labels: Labels, roles: Labels, **reserved) -> Setting:
    """Thirty writers per client, as in the code; the paper's sizes need a few more at M = 50."""
    return setting_of("femnist", of_writers(num_clients, 30, **reserved), labels, roles)


def _cifar10(num_clients: int, labels: Labels, roles: Labels, **reserved) -> Setting:
    """Clients of equal size; for M = 10 in proportion to the paper's sizes for larger M."""
    sizes = {"train_examples": IN_ALL // num_clients, "server_per_class": 100, "val_per_class": 500}
    return setting_of("cifar10", of_classes(num_clients, **sizes | reserved), labels, roles)


def _sent140(num_clients: int, labels: Labels, roles: Labels, **reserved) -> Setting:
    """190 tweets of each class at M = 100 (section 0), otherwise in proportion (ours).

    There are too few tweets labelled by hand, so the test examples are others.
    """
    partition = {
        **{"kind": "server_majority", "num_clients": num_clients, "pool_per_class": 19_000},
        **{"train_examples": 38_000 // num_clients, "share": 0.5},
        **{"val_per_class": 1000, "server_per_class": 500, **reserved},
    }
    return setting_of("sent140", partition, labels, roles)


def _yelp(num_clients: int, labels: Labels, roles: Labels, **reserved) -> Setting:
    """5,000 reviews per client, more than half of one class (sections 0 and 4.4)."""
    partition = {
        **{"kind": "server_majority", "num_clients": num_clients, "pool_per_class": 125_000},
        **{"train_examples": 5000, "share": 0.55, "share_to": 0.65, "rest": "all"},
        **{"val_per_class": 100, "server_per_class": 200, **reserved},
    }
    return setting_of("yelp", partition, labels, roles, evaluate_every=1)
