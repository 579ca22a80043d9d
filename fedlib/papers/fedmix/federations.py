"""Construction of FedMix's federations; sections are those of README.md."""

import math
from dataclasses import replace

from fedlib.papers.fedmix.settings import Setting
from fedlib.spec import Data

SEED = 12345  # of the partitions; ours
READING = {  # arguments of each data set's `read`: pixels are scaled as in 5.1, 5.4 and 5.6
    "digits": {},
    "cifar10": {"scaling": "measured"},
    "cifar100": {},
    "mnist": {"scaling": "unit"},
    "femnist": {"source": "tff", "scaling": "unit"},
}
FEDERATIONS = {  # data set, title and name of the partition
    "digits": ("digits", "Digits", "hsu1.0"),
    "digits-leak": ("digits", "Digits, all clients", "hsu1.0"),
    "digits-central": ("digits", "Digits, one client", "central"),
    "angled-digits-labels": (
        *("digits", "Digits at eight angles, labels skewed", "angles1.0-labels1.0"),
    ),
    "permuted-digits": ("digits", "Digits, labels permuted", "permuted4"),
    "two-shard-digits": ("digits", "Digits in two shards", "shards2"),
    "cifar10": ("cifar10", "CIFAR-10", "hsu1.0"),
    "cifar10-leak": ("cifar10", "CIFAR-10, all clients", "hsu1.0"),
    "cifar10-central": ("cifar10", "CIFAR-10, one client", "central"),
    "cifar100": ("cifar100", "CIFAR-100", "hierarchical0.1"),
    "femnist": ("femnist", "FEMNIST", "writer"),
    "angled-mnist": ("mnist", "MNIST at eight angles", "angles1.0"),
    "angled-mnist-labels": ("mnist", "MNIST at eight angles, labels skewed", "angles1.0-labels1.0"),
    "permuted-cifar10": ("cifar10", "CIFAR-10, labels permuted", "permuted4"),
    "two-shard-mnist": ("mnist", "MNIST in two shards", "shards2"),
}
HELD_OUT = {"val_fraction": 0.1}  # 45,000 of CIFAR-10's training images train (5.1), MNIST's (5.6)
CENTRAL_ROUNDS = 16  # parts of the one epoch of Figure 14b; ours


def image(in_channels: int, side: int, num_classes: int) -> dict:
    """Arguments of a network for images of `side` x `side` pixels."""
    return {"in_channels": in_channels, "side": side, "num_classes": num_classes}


def setting_of(name: str, partition: dict, *, notes: tuple[str, ...] = (), **how) -> Setting:
    """The setting `how` on a federation of `FEDERATIONS` with this partition."""
    dataset, title, short = FEDERATIONS[name]
    data = Data(
        name=name,
        dataset=dataset,
        params=READING[dataset],
        partition=partition,
        seed=SEED,
        title=title,
        partition_label=short,
        notes=notes,
    )
    return Setting(data=data, **how)


def leak(dataset: str, partition: dict, how: dict) -> Setting:
    """One round of all clients, from which the server infers labels (section 7.5)."""
    return setting_of(
        f"{dataset}-leak",
        {**partition, **HELD_OUT},
        cohort=partition["num_clients"],
        labels=("leak-step", "leak-epoch"),
        seeds=(0,),
        roles=("leakage",),
        **how | {"rounds": 1},
    )


def central(dataset: str, train: int, test: int, how: dict, alpha: float = 1.0) -> Setting:
    """One client with all data that trains one epoch, in sixteen parts (section 7.4)."""
    sizes = {"num_clients": 1, "train_examples": train, "test_examples": test}
    # The steps of one epoch over the nine tenths that are not for validation.
    steps = math.ceil(0.9 * train / how["batch_size"] / CENTRAL_ROUNDS)
    setting = setting_of(
        f"{dataset}-central",
        {"kind": "hsu", "alpha": alpha, **sizes, **HELD_OUT},
        cohort=1,
        labels=("plain-k4",),
        seeds=(0,),
        roles=("collapse",),
        table_rounds=(1, 4, CENTRAL_ROUNDS),
        **how | {"rounds": CENTRAL_ROUNDS, "evaluate_every": 4},
    )
    return replace(setting, steps=steps)
