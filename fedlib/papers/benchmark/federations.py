"""The real federations of the benchmark, twelve from five data sets, and their methods.

Test examples are the publisher's, or the same for every seed, so no seed trains on another's test
examples. Only `mnist-writers` has one partition for all seeds, because its partition would mix
them. Validation examples are taken from the training part. Clients are small on purpose: their
number of training examples, n, decides between local and joint training.
"""

from dataclasses import replace

from fedlib.papers.benchmark.settings import METHODS, ON_SERVER, Setting, able, tuning
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
SERVED = ("fedavg", "fedprox", "fedavg-adam", *ON_SERVER)  # methods that train one global model
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


def _sizes(kind: str, clients: int, train: int, test: int, **more) -> dict:
    """A partition with equal clients: `train` and `test` examples each."""
    return {
        "kind": kind,
        "num_clients": clients,
        "train_examples": train,
        "test_examples": test,
        "val_fraction": VAL,
        "unseen_fraction": UNSEEN,
        **more,
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
    how = {"rate": RATE, "evaluations": QUARTERS, "roles": ("real",), **other}
    return Setting(data=data, labels=labels, **how)


CLUSTERS = {"num_clusters": 4}  # each with its own permutation of the labels
ANGLES = {"rotations": [0, 90, 180, 270]}  # the clusters turn their images
SPREAD = {"sigma": 1.0, "min_examples": 8, "max_examples": 600}  # of training examples
WRITERS = {"kind": "writer", "num_clients": 100, "train_fraction": 0.6, "val_fraction": VAL}
LEAF = {"kind": "writer_parts", "num_clients": 105, "val_fraction": VAL, "unseen_fraction": 0.24}
RESERVED = {  # of 20 clients, and of a server that trains, validates and tests
    **{"kind": "server_equal", "num_clients": 20, "train_examples": 125, "val_fraction": VAL},
    **{"pool_per_class": 500, "alpha": 0.5},
    **{"server_per_class": 20, "val_per_class": 20, "test_per_class": 100},
}
FEDERATIONS = (
    _digits("digits-skew", "Digits, label skew", _sizes("hsu", 25, 50, 16, alpha=1.0)),
    _digits("digits-permuted", "Digits, permuted", _sizes("permuted", 24, 50, 60, **CLUSTERS), 4),
    _digits("digits-rotated", "Digits, rotated", _sizes("rotated", 24, 50, 60, **ANGLES), 4),
    # The writers of MNIST's test part are unseen.
    _mnist(
        "mnist-writers",
        "MNIST, writers",
        {**WRITERS, "unseen": "test_part"},
        source="qmnist",
    ),
    _mnist("mnist-quantity", "MNIST, unlike sizes", _sizes("quantity", 60, 75, 100, **SPREAD)),
    _mnist("mnist-two-shard", "MNIST, two classes", _sizes("two_shard", 60, 76, 100)),
    _mnist("mnist-angled", "MNIST, angles", _sizes("angled", 60, 75, 100, alpha=1.0)),
    _cifar("cifar-skew", "CIFAR-10, label skew", _sizes("hsu", 50, 100, 100, alpha=1.0)),
    _cifar("cifar-permuted", "CIFAR-10, permuted", _sizes("permuted", 48, 100, 100, **CLUSTERS), 4),
    _cifar("cifar-rotated", "CIFAR-10, rotated", _sizes("rotated", 48, 100, 100, **ANGLES), 4),
    # Clients with little data, of whom few take part in a round.
    _letters(
        _data(
            "emnist-device",
            "EMNIST, many clients",
            "emnist",
            _sizes("hsu", 250, 50, 40, alpha=10.0),
            source="test",
        ),
        cohort=0.1,
        rounds=100,
    ),
    _letters(_data("femnist", "FEMNIST", "femnist", LEAF, source="leaf"), cohort=0.25, rounds=40),
    # Five architectures in turn, those of pFedMoE.
    _setting(
        _data("zoo-mnist", "MNIST, unlike models", "mnist", _sizes("two_shard", 25, 126, 100)),
        ZOO,
        model="pfedmoe_cnn",
        model_params={**MNIST, "num_classes": 10},
        architectures=tuple({"size": f"mnist{number}"} for number in range(1, 6)),
        inputs=784,
        image=MNIST,
        rounds=40,
        roles=("zoo",),
    ),
    # One model for all is tested on a server that has data.
    replace(
        _cifar("server-cifar", "CIFAR-10, a server with data", RESERVED),
        labels=SERVED,
        cohort=0.3,
        roles=("server",),
    ),
)


def demo() -> tuple[Setting, ...]:
    """Two federations of digits with few methods, rounds and trials."""
    few = ("local", "fedavg", "fedavg-plus", "fedrep", "fedem")
    how = {"rounds": 12, "evaluations": 1, "tuning": tuning(3, RATES), "seeds": (1, 2)}
    return tuple(replace(setting, labels=few, **how) for setting in FEDERATIONS[:2])


def all_of_them(trials: int) -> tuple[Setting, ...]:
    """All federations, whose methods have as many `trials` each."""
    return tuple(
        replace(setting, tuning=tuning(trials, RATES, rung=setting.data.dataset != "digits"))
        for setting in FEDERATIONS
    )
