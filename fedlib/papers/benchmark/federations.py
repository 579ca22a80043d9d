"""The real federations of the benchmark, twelve from five data sets, and their methods.

Test examples are the publisher's, or the same for every seed, so no seed trains on another's test
examples. Only `mnist-writers` has one partition for all seeds, because its partition would mix
them. Validation examples are taken from the training part. Clients are small on purpose: their
number of training examples, n, decides between local and joint training.
"""

from dataclasses import replace

from fedlib.papers.benchmark.settings import METHODS, Setting, able, tuning
from fedlib.spec import Data

SEED = 20261124  # of every partition
VAL = 0.2  # of a client's training examples
UNSEEN = 0.2  # of the clients, about
RATE, RATES = 0.1, (0.005, 1.5)  # learning rate of the first trial, and the range for tuning
CORE = (  # methods on every federation: anchors and representatives of families
    *("label-prior", "local", "fedavg", "fedavg-plus", "fedavg-wide", "fedavg-adam", "ditto"),
    *("apfl", "fedrep", "biased-fedavg", "ifca", "fedem", "pfedmm", "fedmix"),
    *("adaptive-experts", "pfedmoe", "fml", "fedproto"),
)
ZOO = (  # methods for clients whose models differ in size
    *("local", "lg-fedavg", "fd", "fedproto", "fedgh", "fedtgp"),
    *("fml", "fedkd", "fedapen", "pfedmoe"),
)
DIGITS = {"in_channels": 1, "side": 8}
MNIST = {"in_channels": 1, "side": 28}
CIFAR = {"in_channels": 3, "side": 32}
QUARTERS = 4  # evaluations of a run, to see whether it still gains at the end
TAGS = {  # by federation: how clients differ
    "digits-skew": ("labels",),
    "digits-permuted": ("concepts", "clusters"),
    "digits-rotated": ("features", "clusters"),
    "mnist-writers": ("natural",),
    "mnist-quantity": ("sizes",),
    "mnist-two-shard": ("labels",),
    "mnist-angled": ("features",),
    "cifar-skew": ("labels",),
    "cifar-permuted": ("concepts", "clusters"),
    "cifar-rotated": ("features", "clusters"),
    "emnist-device": ("many clients",),
    "femnist": ("natural", "many clients"),
}


def demo() -> tuple[Setting, ...]:
    """Two federations of digits with few methods, rounds and trials."""
    few = ("local", "fedavg", "fedavg-plus", "fedrep", "fedem")
    return tuple(
        replace(
            setting, labels=few, rounds=12, evaluations=1, tuning=tuning(3, RATES), seeds=(1, 2)
        )
        for setting in (digits_skew(), digits_permuted())
    )


def reduced(trials: int) -> tuple[Setting, ...]:
    """All twelve, and the one with models of different sizes; methods have `trials` each."""
    every = (
        digits_skew(),
        digits_permuted(),
        digits_rotated(),
        mnist_writers(),
        mnist_quantity(),
        mnist_two_shard(),
        mnist_angled(),
        cifar_skew(),
        cifar_permuted(),
        cifar_rotated(),
        emnist_device(),
        femnist(),
        zoo_mnist(),
    )
    return tuple(
        replace(setting, tuning=tuning(trials, RATES, rung=setting.data.dataset != "digits"))
        for setting in every
    )


def digits_skew() -> Setting:
    """25 clients, each with few of the ten classes."""
    partition = _sizes("hsu", 25, 50, 16) | {"alpha": 1.0}
    return _digits("digits-skew", "Digits, label skew", partition)


def digits_permuted() -> Setting:
    """24 clients in four clusters, each with its own permutation of the labels."""
    partition = _sizes("permuted", 24, 50, 60) | {"num_clusters": 4}
    return _digits("digits-permuted", "Digits, permuted", partition, clusters=4)


def digits_rotated() -> Setting:
    """24 clients in four clusters, each with its own rotation of the images."""
    partition = _sizes("rotated", 24, 50, 60) | {"rotations": [0, 90, 180, 270]}
    return _digits("digits-rotated", "Digits, rotated", partition, clusters=4)


def mnist_writers() -> Setting:
    """A hundred writers; those of MNIST's test part are unseen."""
    partition = {
        "kind": "writer",
        "num_clients": 100,
        "train_fraction": 0.6,
        "val_fraction": VAL,
        "unseen": "test_part",
    }
    return _mnist("mnist-writers", "MNIST, writers", partition, source="qmnist")


def mnist_quantity() -> Setting:
    """60 clients with 8 to 600 training examples."""
    spread = {"sigma": 1.0, "min_examples": 8, "max_examples": 600}
    partition = _sizes("quantity", 60, 75, 100) | spread
    return _mnist("mnist-quantity", "MNIST, unlike sizes", partition)


def mnist_two_shard() -> Setting:
    """60 clients with two classes each."""
    return _mnist("mnist-two-shard", "MNIST, two classes", _sizes("two_shard", 60, 76, 100))


def mnist_angled() -> Setting:
    """60 clients, each with its own distribution over the angles of its images."""
    partition = _sizes("angled", 60, 75, 100) | {"alpha": 1.0}
    return _mnist("mnist-angled", "MNIST, angles", partition)


def cifar_skew() -> Setting:
    """50 clients, each with few of the ten classes."""
    partition = _sizes("hsu", 50, 100, 100) | {"alpha": 1.0}
    return _cifar("cifar-skew", "CIFAR-10, label skew", partition)


def cifar_permuted() -> Setting:
    """48 clients in four clusters, each with its own permutation of the labels."""
    partition = _sizes("permuted", 48, 100, 100) | {"num_clusters": 4}
    return _cifar("cifar-permuted", "CIFAR-10, permuted", partition, clusters=4)


def cifar_rotated() -> Setting:
    """48 clients in four clusters, each with its own rotation of the images."""
    partition = _sizes("rotated", 48, 100, 100) | {"rotations": [0, 90, 180, 270]}
    return _cifar("cifar-rotated", "CIFAR-10, rotated", partition, clusters=4)


def emnist_device() -> Setting:
    """250 clients with little data; few take part in a round."""
    partition = _sizes("hsu", 250, 50, 40) | {"alpha": 10.0}
    data = _data("emnist-device", "EMNIST, many clients", "emnist", partition, source="test")
    return _letters(data, cohort=0.1, rounds=100)


def femnist() -> Setting:
    """Writers with LEAF's training and test parts."""
    partition = {"kind": "writer_parts", "num_clients": 105, "val_fraction": VAL}
    partition |= {"unseen_fraction": 0.24}
    data = _data("femnist", "FEMNIST", "femnist", partition, source="leaf")
    return _letters(data, cohort=0.25, rounds=40)


def zoo_mnist() -> Setting:
    """25 clients with two classes each and five architectures in turn, those of pFedMoE."""
    data = _data("zoo-mnist", "MNIST, unlike models", "mnist", _sizes("two_shard", 25, 126, 100))
    setting = _setting(
        data,
        ZOO,
        model="pfedmoe_cnn",
        model_params={**MNIST, "num_classes": 10},
        architectures=tuple({"size": f"mnist{number}"} for number in range(1, 6)),
        inputs=784,
        image=MNIST,
        rounds=40,
    )
    return replace(setting, roles=("zoo",))


def _sizes(kind: str, clients: int, train: int, test: int) -> dict:
    """A partition with equal clients: `train` and `test` examples each."""
    return {
        "kind": kind,
        "num_clients": clients,
        "train_examples": train,
        "test_examples": test,
        "val_fraction": VAL,
        "unseen_fraction": UNSEEN,
    }


def _data(name: str, title: str, dataset: str, partition: dict, **params: str) -> Data:
    return Data(
        name=name,
        dataset=dataset,
        params=params,
        partition=partition,
        seed=SEED,
        title=title,
        partition_label=partition["kind"],
        per_seed=partition["kind"] != "writer",
    )


def _digits(name: str, title: str, partition: dict, clusters: int = 0) -> Setting:
    """An MLP of 4,810 parameters; all clients are in every round."""
    return _setting(
        _data(name, title, "digits", partition),
        able(METHODS, "body", "everybody", "clusters" if clusters else ""),
        model="mlp",
        model_params={"in_features": 64, "hidden": 64, "num_classes": 10},
        inputs=64,
        image=DIGITS,
        local={"batch_size": 16, "epochs": 1},
        rounds=40,
        clusters=clusters,
    )


def _mnist(name: str, title: str, partition: dict, **params: str) -> Setting:
    """An MLP of 50,890 parameters; half of the seen clients are in a round."""
    return _setting(
        _data(name, title, "mnist", partition, **params),
        able(METHODS, "body"),
        model="mlp",
        model_params={"in_features": 784, "hidden": 64, "num_classes": 10},
        inputs=784,
        image=MNIST,
        cohort=0.5,
        rounds=40,
    )


def _cifar(name: str, title: str, partition: dict, clusters: int = 0) -> Setting:
    """A LeNet-5 of 8 channels; half of the seen clients are in a round."""
    return _setting(
        _data(name, title, "cifar10", partition),
        able((*CORE, "known-clusters"), "body", "clusters" if clusters else ""),
        model="lenet5",
        model_params={**CIFAR, "channels": 8, "hidden": 64, "num_classes": 10},
        inputs=3072,
        image=CIFAR,
        cohort=0.5,
        rounds=40,
        clusters=clusters,
    )


def _letters(data: Data, cohort: float, rounds: int) -> Setting:
    """A LeNet-5 of 8 channels for 62 classes."""
    return _setting(
        data,
        CORE,
        model="lenet5",
        model_params={**MNIST, "channels": 8, "hidden": 128, "num_classes": 62},
        inputs=784,
        image=MNIST,
        cohort=cohort,
        rounds=rounds,
    )


def _setting(data: Data, labels: tuple[str, ...], **other) -> Setting:
    how = {"rate": RATE, "evaluations": QUARTERS, **other}
    return Setting(data=data, labels=labels, roles=("real",), **how)
