"""The federations of Fed-MoE at every scale, and what is run on them.

Sections are those of docs/papers/fedmoe.md. The server trains, validates and tests on data of its
own; there is a probe for preset "code" alone, which measures relevance on other examples than those
that the gate is trained on.
"""

from fedlib.papers._fedmoe_settings import (
    BETAS,
    EXPERTS,
    GATES,
    KEPT,
    MAINS,
    OURS,
    PARTS,
    PRINTED,
    WEIGHTS,
    Networks,
    Setting,
)
from fedlib.spec import Data

SEED = 42  # of the partitions; the code's
SEEDS = (0, 1, 2)  # ours; the paper does not say how often it repeats
MAJORITY = 0.6  # of the skewed reserved data (Figure 4)
IN_ALL = 37_500  # training images of all clients of CIFAR-10 (section 0)
LEAF = {"source": "leaf", "scaling": "symmetric"}  # section 4.1
TITLES = {"digits": "Digits", "femnist": "FEMNIST", "cifar10": "CIFAR-10"}
DIGITS_NOTE = "scikit-learn's 1,797 handwritten digits; not a data set of the paper."
TEXT_NOTE = "texts of five classes, made up here; not a data set of the paper."


def _cnn(num_classes: int, **size) -> Networks:
    return Networks("fedmoe_cnn", {"num_classes": num_classes, **size}, "fedmoe_cnn", size)


def _resnet(**size) -> Networks:
    size = {"augment": True, **size}
    return Networks("cifar_resnet18", {"num_classes": 10, **size}, "cifar_resnet18", size)


# -- demo ---------------------------------------------------------------------------------

QUICK = {  # rates of ours, at which few rounds show something; lambda moves experts half way
    "rounds": 6,
    "cohort": 3,
    "local": {"lr": 3e-3, "batch_size": 16, "epochs": 2},
    "server": {"lr": 3e-3, "batch_size": 16, "epochs": 2},
    "params": {"lam": 0.5, "alpha_lr_scale": 1.0},
    "evaluate_every": 2,
}
DEMO = (
    *(*PRINTED, *OURS, *PARTS, "fedmoe-beta-1e-1", "fedmoe-top-2", "fedmoe-main-0"),
    *("fedmoe-main-2", "avg-moe-k3", "fedmoe-k6", "avg-moe-k6", *WEIGHTS, *GATES),
)
ABLATIONS = ("experts", "parts", "betas", "kept", "mixtures", "mains", "weights", "gates")


def demo() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """Digits and made-up texts in place of all data sets, each method once."""
    return (
        "demo: 1,797 digits and made-up texts, small networks and a few rounds; shows that "
        "everything runs, not what the paper claims.",
        (0,),
        (
            _digits(6, DEMO, ("main", "size", *ABLATIONS, "reserved", "even", "written")),
            _digits(12, ("fedavg", "fedmoe"), ("main",)),
            _digits(6, ("fedmoe",), ("reserved",), server_per_class=5),
            _digits(6, ("avg-moe", "fedmoe"), ("skewed",), majority=MAJORITY),
            _made_up_texts(("fedavg", "centmoe", "avg-moe", "fedmoe")),
        ),
    )


def _digits(
    num_clients: int, labels: tuple[str, ...], roles: tuple[str, ...], **reserved
) -> Setting:
    partition = {
        **{"kind": "server_equal", "num_clients": num_clients, "pool_per_class": 80},
        **{"train_examples": 600 // num_clients, "val_per_class": 10, "server_per_class": 20},
        **{"probe_per_class": 4, **reserved},
    }
    return _setting(
        *("digits", num_clients, partition, labels, roles),
        networks=_cnn(10, hidden=32, side=8),
        preset="femnist",
        notes=(DIGITS_NOTE,),
        **QUICK,
    )


def _made_up_texts(labels: tuple[str, ...]) -> Setting:
    data = Data(
        name="text-m6",
        dataset="synthetic_text",
        params={"num_clients": 6, "train_examples": 100, "test_examples": 0},
        partition={"kind": "natural"},
        seed=SEED,
        title="Made-up texts, M = 6",
        partition_label="natural",
        family="Made-up texts",
        notes=(TEXT_NOTE,),
    )
    size = {"size": "bert-lite", "vocabulary": 200, "max_length": 16, "pool": "mean"}
    return Setting(
        data=data,
        labels=labels,
        networks=Networks("transformer", {"num_classes": 5, **size}, "transformer", size),
        preset="femnist",
        num_clients=6,
        roles=("main", "size"),
        column="M = 6",
        **QUICK,
    )


# -- reduced ------------------------------------------------------------------------------

LITE = (
    *(*PRINTED, *OURS, *PARTS, "fedmoe-beta-1e-1", "fedmoe-top-2", "fedmoe-top-5"),
    *("fedmoe-main-0", "fedmoe-main-2", "avg-moe-k5", "fedmoe-k10", "avg-moe-k10"),
    *(*WEIGHTS, *GATES),
)


def reduced() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """Real CIFAR-10 and LEAF's FEMNIST with the `lite` settings of section 5.2."""
    few = ("fedavg", "fedprox", "avg-moe", "fedmoe")
    return (
        "reduced: the real CIFAR-10 and LEAF's FEMNIST with narrow networks, few examples and "
        "rounds, and one seed.",
        (0,),
        (
            _femnist_lite(10, 5, LITE, ("main", "size", *ABLATIONS, "reserved", "written")),
            _femnist_lite(50, 1, PRINTED, ("main",)),
            _femnist_lite(10, 5, ("fedmoe",), ("reserved",), server_examples=320),
            _cifar10_lite(10, (*PRINTED, *PARTS), ("main", "parts", "even", "written")),
            _cifar10_lite(50, few, ("main",)),
            _cifar10_lite(100, few, ("main",)),
            _cifar10_lite(10, ("avg-moe", "fedmoe"), ("skewed",), majority=MAJORITY),
        ),
    )


def _femnist_lite(
    num_clients: int, writers: int, labels: tuple[str, ...], roles: tuple[str, ...], **reserved
) -> Setting:
    return _setting(
        *("femnist", num_clients, _of_writers(num_clients, writers, **reserved), labels, roles),
        networks=_cnn(62, hidden=256, augment=True),
        preset="femnist",
        notes=(
            f"clients of {writers} writer{'s' * (writers > 1)} instead of 30, a hidden layer of "
            "256 instead of 2,048; 15 rounds of 2 epochs instead of 100 of 5, and λ = 0.3 instead "
            "of 0.1, as experts are to leave their first draw in these rounds. The gate has ten "
            "times the rate.",
        ),
        rounds=15,
        local={"epochs": 2},
        server={"lr": 3e-4},
        params={"lam": 0.3},
        evaluate_every=3,
    )


def _cifar10_lite(
    num_clients: int, labels: tuple[str, ...], roles: tuple[str, ...], **reserved
) -> Setting:
    fewer = {"train_examples": 375, "server_per_class": 20, "val_per_class": 50}
    few = _of_classes(num_clients, **fewer, test_per_class=200, **reserved)
    return _setting(
        *("cifar10", num_clients, few, labels, roles),
        networks=_resnet(width=16),
        preset="cifar10",
        notes=(
            "375 images per client, 200 reserved instead of 1,000, 500 to validate on and 2,000 to "
            "test on instead of 10,000; a ResNet-18 of width 16 instead of 64; 10 rounds instead "
            "of 100. One inner step with λ = 0.41 for the experts moves them as far as five with "
            "0.1.",
        ),
        rounds=10,
        server={"schedule": {"kind": "cosine", "period": 10 * 5}},
        params={"inner_steps": 1, "lam": 0.41, "client_lam": 0.1},
        evaluate_every=2,
    )


# -- full ---------------------------------------------------------------------------------

EVERYTHING = (*PRINTED, *OURS)
ON_FEMNIST = (
    *(*EVERYTHING, *PARTS, "fedmoe-beta-1e-1", *(f"fedmoe-top-{n}" for n in KEPT)),
    *(*(f"fedmoe-main-{n}" for n in MAINS), *WEIGHTS, "avg-moe-k5"),
    *(f"{method}-k{num}" for num in EXPERTS for method in ("fedmoe", "avg-moe")),
)
ON_CIFAR10 = (
    *(*EVERYTHING, *PARTS, *(f"fedmoe-beta-{beta}" for beta in BETAS)),
    *(*(f"fedmoe-top-{n}" for n in KEPT), *WEIGHTS),
)
FEMNIST_ROLES = ("main", "size", "experts", "parts", "kept", "mixtures", "mains", "weights")
CIFAR10_ROLES = ("main", "parts", "betas", "kept", "mixtures", "weights")


def full() -> tuple[str, tuple[int, ...], tuple[Setting, ...]]:
    """Data and networks of section 0, rounds and rates of section 3.1."""
    return (
        "full: the paper's data sets, networks and federations with the released code's rounds "
        "and rates, as the paper prints none; three seeds.",
        SEEDS,
        (*_images(),),
    )


def _images() -> tuple[Setting, ...]:
    """FEMNIST and CIFAR-10."""
    written = ("reserved", "written")
    return (
        _femnist(10, EVERYTHING, ("main",)),
        _femnist(50, ON_FEMNIST, (*FEMNIST_ROLES, *written)),
        _femnist(100, EVERYTHING, ("main",)),
        _cifar10(10, EVERYTHING, ("main",)),
        _cifar10(50, ON_CIFAR10, (*CIFAR10_ROLES, *written)),
        _cifar10(100, EVERYTHING, ("main",)),
        *(_femnist(50, ("fedmoe",), ("reserved",), server_examples=n) for n in (320, 640)),
        *(_cifar10(50, ("fedmoe",), ("reserved",), server_per_class=n) for n in (25, 50)),
        _femnist_of_the_code(),
        _cifar10_of_the_code(),
    )


def _femnist(
    num_clients: int, labels: tuple[str, ...], roles: tuple[str, ...], **reserved
) -> Setting:
    """Thirty writers per client, as in the code; the paper's sizes need a few more at M = 50."""
    partition = _of_writers(num_clients, 30, **reserved)
    networks = _cnn(62, augment=True)
    return _setting("femnist", num_clients, partition, labels, roles, networks, "femnist")


def _cifar10(
    num_clients: int, labels: tuple[str, ...], roles: tuple[str, ...], **reserved
) -> Setting:
    """Clients of equal size, M = 10 in proportion to what is printed of the others."""
    sizes = {"train_examples": IN_ALL // num_clients, "server_per_class": 100, "val_per_class": 500}
    partition = _of_classes(num_clients, **(sizes | reserved))
    return _setting("cifar10", num_clients, partition, labels, roles, _resnet(), "cifar10")


def _femnist_of_the_code() -> Setting:
    """Ten writers for the gate, all of their examples, and another for relevance (section 4.1)."""
    partition = _of_writers(50, 30, server_examples=None, probe_writers=1)
    networks = _cnn(62, augment=True)
    return _setting("femnist", 50, partition, GATES, ("gates",), networks, "femnist", "code")


def _cifar10_of_the_code() -> Setting:
    """Unequal clients, 10,000 images for the gate and 200 for relevance (section 4.2)."""
    partition = {
        **{"kind": "server_dirichlet", "num_clients": 50, "pool_per_class": 3480, "alpha": 1.0},
        **{"probe_per_class": 20, "val_per_class": 500, "server_per_class": 1000},
    }
    return _setting("cifar10", 50, partition, GATES, ("gates",), _resnet(), "cifar10", "code")


# -- all scales ---------------------------------------------------------------------------


def _of_writers(num_clients: int, writers: int, **reserved) -> dict:
    """Groups of writers; ten more own the reserved examples (section 4.1)."""
    return {
        **{"kind": "writer_groups", "num_clients": num_clients, "writers_per_client": writers},
        **{"server_writers": 10, "probe_writers": 1, "server_examples": 1280, **reserved},
    }


def _of_classes(num_clients: int, **sizes) -> dict:
    """Clients of equal size with Dirichlet(1.0) proportions (section 0)."""
    return {
        **{"kind": "server_equal", "num_clients": num_clients, "pool_per_class": 3750},
        **{"alpha": 1.0, "probe_per_class": 20, **sizes},
    }


def _setting(
    dataset: str,
    num_clients: int,
    partition: dict,
    labels: tuple[str, ...],
    roles: tuple[str, ...],
    networks: Networks,
    preset: str,
    kind: str = "",
    notes: tuple[str, ...] = (),
    **about,
) -> Setting:
    """On a federation that is called by what tells it from others of its number of clients."""
    reserved = _reserved(partition)
    what = {
        "reserved": f"{reserved} reserved",
        "skewed": "skewed reserved data",
        "code": "as in the code",
    }
    name = kind or (roles[0] if roles[0] in what else "")
    ends = {"reserved": f"-reserved{reserved}", "skewed": "-skewed", "code": "-code"}
    title = TITLES[dataset]
    data = Data(
        name=f"{dataset}-m{num_clients}{ends.get(name, '')}",
        dataset=dataset,
        params={"femnist": LEAF, "cifar10": {"scaling": "imagenet"}}.get(dataset, {}),
        partition=partition,
        seed=SEED,
        title=f"{title}, M = {num_clients}" + (f", {what[name]}" if name else ""),
        partition_label=partition["kind"],
        family=title,
        notes=notes,
    )
    return Setting(
        data=data,
        labels=tuple(dict.fromkeys(labels)),
        networks=networks,
        preset=preset,
        num_clients=num_clients,
        roles=roles,
        column=f"M = {num_clients}",
        reserved=reserved,
        **about,
    )


def _reserved(partition: dict) -> int | None:
    """How many examples the server trains on, where the declaration says so."""
    if partition["kind"] == "writer_groups":
        return partition["server_examples"]
    return 10 * partition["server_per_class"]  # of ten classes
