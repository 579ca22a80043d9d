"""FedMix's federations; sections are those of README.md, and F1 to F13 its decisions."""

from fedlib.papers.fedmix.settings import Setting
from fedlib.spec import Data

SEED = 12345  # of the partitions; ours
READING = {  # arguments of each data set's `read`: pixels are scaled as section 5 says [R]
    "digits": {},
    "cifar10": {"scaling": "measured"},
    "cifar100": {},  # the constants of CIFAR-10 (5)
    "mnist": {"scaling": "unit"},
    "femnist": {"source": "tff", "scaling": "unit"},
}
HELD_OUT = {"val_fraction": 0.1}  # 45,000 of CIFAR-10's training images train (5.1), MNIST's (5.6)
DIGITS = {"num_clients": 20, "train_examples": 60, "test_examples": 20}
# Partitions of CIFAR-10 and MNIST use all 50,000 or 60,000 training and 10,000 test images.
CIFAR10 = {"num_clients": 100, "train_examples": 500, "test_examples": 100}
MNIST = {"num_clients": 100, "train_examples": 600, "test_examples": 100}
HSU = {"kind": "hsu", "alpha": 1.0}  # paper (5.1)
ANGLED = {"kind": "angled", "alpha": 1.0}  # paper (5.4)
SKEWED = {**ANGLED, "label_alpha": 1.0}
PERMUTED = {"kind": "permuted", "num_clients": 20, "num_clusters": 4}  # paper (5.5)
TWO_SHARD = {"kind": "two_shard", **HELD_OUT}
CENTRAL = {"kind": "hsu", "num_clients": 1, **HELD_OUT}
# Reddi et al. (5.2).
HIERARCHICAL = {"kind": "hierarchical", "num_clients": 500, "alpha": 0.1, "beta": 10.0}


FEDERATIONS = {  # data set, title, short name of the partition, and the partition
    "digits": (
        *("digits", "Digits", "hsu1.0"),
        {**HSU, **DIGITS, "val_fraction": 0.2, "unseen_fraction": 0.2},
    ),
    "digits-leak": ("digits", "Digits, all clients", "hsu1.0", {**HSU, **DIGITS, **HELD_OUT}),
    "digits-central": (
        *("digits", "Digits, one client", "central"),
        # With a small alpha, much of a label could be in the few images that are left over.
        {**CENTRAL, "alpha": 1e6, "train_examples": 1300, "test_examples": 400},
    ),
    "angled-digits-labels": (
        *("digits", "Digits at eight angles, labels skewed", "angles1.0-labels1.0"),
        {**SKEWED, **DIGITS},
    ),
    "permuted-digits": ("digits", "Digits, labels permuted", "permuted4", PERMUTED),
    "two-shard-digits": (
        *("digits", "Digits in two shards", "shards2"),
        {**TWO_SHARD, "num_clients": 20},
    ),
    "cifar10": ("cifar10", "CIFAR-10", "hsu1.0", {**HSU, **CIFAR10, **HELD_OUT}),
    "cifar10-leak": ("cifar10", "CIFAR-10, all clients", "hsu1.0", {**HSU, **CIFAR10, **HELD_OUT}),
    "cifar10-central": (
        *("cifar10", "CIFAR-10, one client", "central"),
        {**CENTRAL, "alpha": 1.0, "train_examples": 50_000, "test_examples": 10_000},
    ),
    "cifar100": (
        *("cifar100", "CIFAR-100", "hierarchical0.1"),
        {**HIERARCHICAL, "train_examples": 100, "test_examples": 20},
    ),
    "femnist": ("femnist", "FEMNIST", "writer", {"kind": "writer_parts"}),
    "angled-mnist": ("mnist", "MNIST at eight angles", "angles1.0", {**ANGLED, **MNIST}),
    "angled-mnist-labels": (
        *("mnist", "MNIST at eight angles, labels skewed", "angles1.0-labels1.0"),
        {**SKEWED, **MNIST},
    ),
    "permuted-cifar10": ("cifar10", "CIFAR-10, labels permuted", "permuted4", PERMUTED),
    "two-shard-mnist": (
        *("mnist", "MNIST in two shards", "shards2"),
        {**TWO_SHARD, "num_clients": 100},
    ),
}


def setting_of(
    name: str, *, sizes: dict | None = None, notes: tuple[str, ...] = (), **how
) -> Setting:
    """The setting `how` on a federation of `FEDERATIONS`, or on one of other `sizes`."""
    dataset, title, label, partition = FEDERATIONS[name]
    partition = {**partition, **(sizes or {})}
    data = Data(name, dataset, partition, SEED, title, label, READING[dataset], notes=notes)
    return Setting(data=data, **how)
