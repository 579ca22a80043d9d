"""The runs of pFedMM at every scale."""

from dataclasses import replace

from fedlib.papers._frame import DIGITS_NOTE, Scale
from fedlib.papers.pfedmm import settings
from fedlib.papers.pfedmm.federations import (
    ALPHAS,
    AS_FEDEM,
    CIFAR10,
    CIFAR100,
    EMNIST,
    FEMNIST,
    SHAKESPEARE,
    UNSEEN,
    data,
    dirichlet,
    with_alphas,
    with_unseen,
)


def demo() -> Scale:
    """Small federations with settings of ours, chosen on seed 7, which is not shown."""
    notes, dealt = (f"Digits: {DIGITS_NOTE}",), dirichlet(20, num_groups=3)
    digits = data("digits", "Digits", "dirichlet0.4", dealt, notes=notes)
    clients = {"num_clients": 20, "num_components": 3, "dim": 20, "test_size": 200}
    synthetic = data(
        "synthetic",
        "Synthetic",
        "mixture0.4",
        {"kind": "natural", "val_fraction": 0.0},
        params={**clients, "alpha": settings.ALPHA},
        notes=(
            "Synthetic: FedEM's mixture of three linear models, with 20 clients and 20 dimensions; "
            "the paper reports nothing on it. With a linear model pFedMM has no body to share and "
            "is FedEM.",
        ),
    )
    small = {"fedprox_mu": 0.1, "batch_size": 32}
    main = settings.Setting(
        data=digits,
        model="mlp",
        model_params={"in_features": 64, "hidden": 64, "num_classes": 10},
        rounds=20,
        rates=dict.fromkeys(settings.METHODS, 0.1) | {"fedprox": 0.3, "fedem": 0.3},
        gate_features=64,
        labels=(*settings.METHODS, *settings.of_experts(2), "pfedmm-relu", *settings.PARTICIPATION),
        **small,
    )
    linear = settings.Setting(
        data=synthetic,
        model="linear",
        model_params={"in_features": 20, "num_classes": 2},
        rounds=10,
        rates=dict.fromkeys(settings.METHODS, 0.3),
        gate_features=20,
        labels=("fedavg", "fedem", "pfedmm"),
        roles=("fedem-readme",),
        **small,
    )
    varied = with_alphas(main, (0.1, 1e6), ("fedavg", "pfedmm"))
    return (
        "demo: small federations that need no download and settings chosen for them; shows that "
        "everything runs, not what the paper claims.",
        (settings.TRAINING_SEED,),
        (main, linear, *varied, with_unseen(main, UNSEEN[1:])),
    )


def reduced() -> Scale:
    """The real data sets, dealt as in the paper, for a laptop."""
    test_split = replace(
        EMNIST.data,
        params={"source": "test"},
        # The paper's number of images; int() of this times 116,323 is 81,425.
        partition={**EMNIST.data.partition, "fraction": 81_425.5 / 116_323},
        notes=(
            "EMNIST: the 81,425 images are drawn from the official test split (116,323 images) "
            "instead of from both splits.",
        ),
    )
    random_weights = replace(
        CIFAR10.data,
        notes=(
            "CIFAR-10: MobileNet-v2 starts from random weights; the published numbers presuppose "
            "weights trained on ImageNet. Its running statistics then take some sixty local steps "
            "to settle, and accuracy stays near chance until they have: batches have 32 examples "
            "instead of 128, so that a round has four times the steps.",
        ),
    )
    hundred = replace(
        FEMNIST.data,
        partition={**FEMNIST.data.partition, "fraction": 1.0, "num_clients": 100},
        notes=("FEMNIST: 100 writers; FedEM takes 15 % of the 3,597, which is 539.",),
    )
    emnist = replace(
        EMNIST, data=test_split, labels=tuple(settings.PUBLISHED), first=11, evaluate_every=2
    )
    femnist = replace(
        FEMNIST, data=hundred, labels=(*settings.FEDEM_README, "pfedmm"), first=13, evaluate_every=2
    )
    few = ("local", "fedavg", "pfedmm")
    cifar10 = replace(
        CIFAR10, data=random_weights, labels=few, first=4, weights=None, batch_size=32
    )
    return (
        "reduced: the first rounds of the papers' runs on the real data sets, with the papers' "
        "partitions and learning rates.",
        (settings.TRAINING_SEED,),
        (emnist, femnist, cifar10, with_unseen(emnist, UNSEEN)),
    )


def full() -> Scale:
    """The paper's settings; it prints one seed, so intervals are ours."""
    main, published = (EMNIST, CIFAR10, CIFAR100), tuple(settings.PUBLISHED)
    varied = (
        other
        for setting in main
        for other in (*with_alphas(setting, ALPHAS, published), with_unseen(setting, published))
    )
    return (
        "full: the paper's data, partitions, models and hyper-parameters.",
        (settings.TRAINING_SEED, settings.TRAINING_SEED + 1, settings.TRAINING_SEED + 2),
        (
            *(*main, FEMNIST, SHAKESPEARE, *AS_FEDEM, *varied),
            *(with_unseen(setting, UNSEEN) for setting in (FEMNIST, SHAKESPEARE)),
        ),
    )
