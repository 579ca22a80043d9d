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
HELD_OUT = {"val_fraction": 0.1}  # 45,000 of CIFAR-10's training images train (5.1), MNIST's (5.6)
CENTRAL_ROUNDS = 16  # parts of the one epoch of Figure 14b; ours


def image(in_channels: int, side: int, num_classes: int) -> dict:
    """Arguments of a network for images of `side` x `side` pixels."""
    return {"in_channels": in_channels, "side": side, "num_classes": num_classes}


def setting_of(name: str, dataset: str, title: str, partition: dict, *, short: str,
               notes: tuple[str, ...] = (), **how) -> Setting:  # fmt: skip
    """The setting `how` on a data set and partition; `short` names the partition."""
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


def leak(dataset: str, title: str, partition: dict, how: dict) -> Setting:
    """One round of all clients, from which the server infers labels (section 7.5)."""
    return setting_of(
        f"{dataset}-leak",
        dataset,
        f"{title}, all clients",
        {**partition, **HELD_OUT},
        short="hsu1.0",
        cohort=partition["num_clients"],
        labels=("leak-step", "leak-epoch"),
        seeds=(0,),
        roles=("leakage",),
        **how | {"rounds": 1},
    )


def central(dataset: str, title: str, train: int, test: int, how: dict,
             alpha: float = 1.0) -> Setting:  # fmt: skip
    """One client with all data that trains one epoch, in sixteen parts (section 7.4)."""
    sizes = {"num_clients": 1, "train_examples": train, "test_examples": test}
    # The steps of one epoch over the nine tenths that are not for validation.
    steps = math.ceil(0.9 * train / how["batch_size"] / CENTRAL_ROUNDS)
    setting = setting_of(
        f"{dataset}-central",
        dataset,
        title,
        {"kind": "hsu", "alpha": alpha, **sizes, **HELD_OUT},
        short="central",
        cohort=1,
        labels=("plain-k4",),
        seeds=(0,),
        roles=("collapse",),
        table_rounds=(1, 4, CENTRAL_ROUNDS),
        **how | {"rounds": CENTRAL_ROUNDS, "evaluate_every": 4},
    )
    return replace(setting, steps=steps)
