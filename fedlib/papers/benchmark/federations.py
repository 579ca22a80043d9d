"""The real federations of the benchmark, twelve from five data sets, and their methods.

Test examples are the publisher's, or the same for every seed, so no seed trains on another's test
examples. Only `mnist-writers` has one partition for all seeds, because its partition would mix
them. Validation examples are taken from the training part. Clients are small on purpose: their
number of training examples, n, decides between local and joint training.
"""

from dataclasses import replace

from fedlib.papers._frame import TITLES
from fedlib.papers.benchmark import registered, registered_tunings, settings
from fedlib.papers.benchmark.settings import Setting, able, retuning, tuning
from fedlib.spec import Data

SEED = 20261124  # of every partition
VAL = 0.2  # of a client's training examples
UNSEEN = 0.2  # of the clients, about
ROUNDS = 40
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
SERVED = ("fedavg", "fedprox", "fedavg-adam", *settings.ON_SERVER)  # methods with a global model
QUARTERS = 4  # evaluations of a run, to see whether it still gains at the end


def _sizes(kind: str, clients: int, train: int, test: int, **more) -> dict:
    """A partition with equal clients: `train` and `test` examples each."""
    sizes = {"num_clients": clients, "train_examples": train, "test_examples": test}
    return {"kind": kind, **sizes, "val_fraction": VAL, "unseen_fraction": UNSEEN, **more}


DIGITS = {"in_channels": 1, "side": 8}
MNIST = {"in_channels": 1, "side": 28}
CIFAR = {"in_channels": 3, "side": 32}
LETTERS = {  # a LeNet-5 of 8 channels for 62 classes
    "image": MNIST,
    "model": "lenet5",
    "model_params": {**MNIST, "channels": 8, "hidden": 128, "num_classes": 62},
}
NETWORKS = {  # by data set; `cohort` is the share of the seen clients in a round
    "digits": {  # an MLP of 4,810 parameters
        "image": DIGITS,
        "model": "mlp",
        "model_params": {"in_features": 64, "hidden": 64, "num_classes": 10},
        "local": {"batch_size": 16, "epochs": 1},
    },
    "mnist": {  # an MLP of 50,890 parameters
        "image": MNIST,
        "model": "mlp",
        "model_params": {"in_features": 784, "hidden": 64, "num_classes": 10},
        "cohort": 0.5,
    },
    "cifar10": {  # a LeNet-5 of 8 channels
        "image": CIFAR,
        "model": "lenet5",
        "model_params": {**CIFAR, "channels": 8, "hidden": 64, "num_classes": 10},
        "cohort": 0.5,
    },
    "emnist": {**LETTERS, "cohort": 0.1},
    "femnist": {**LETTERS, "cohort": 0.25},
}


def _federation(
    dataset: str, name: str, what: str, partition: dict, source: str = "", **other
) -> Setting:
    """A federation with all methods that can run on it, or few if images are large."""
    how = {"rate": RATE, "rounds": ROUNDS, "evaluations": QUARTERS, "roles": ("real",)}
    how |= {**NETWORKS[dataset], **other}
    clusters = partition.get("num_clusters") or len(partition.get("rotations", ()))
    data = Data(
        name=name,
        dataset=dataset,
        params={"source": source} if source else {},
        partition=partition,
        seed=SEED,
        title=f"{TITLES[dataset]}, {what}" if what else TITLES[dataset],
        partition_label=partition["kind"],
        per_seed=partition["kind"] != "writer",
    )
    methods = settings.METHODS if how["model"] == "mlp" else (*CORE, "known-clusters")
    everybody = "" if "cohort" in how else "everybody"
    labels = able(methods, "body", everybody, "clusters" if clusters else "")
    return Setting(**{"data": data, "labels": labels, "clusters": clusters, **how})


CLUSTERS = {"num_clusters": 4}  # each with its own permutation of the labels
ANGLES = {"rotations": [0, 90, 180, 270]}  # the clusters turn their images
SPREAD = {"sigma": 1.0, "min_examples": 8, "max_examples": 600}  # of training examples
WRITERS = {"kind": "writer", "num_clients": 100, "train_fraction": 0.6, "val_fraction": VAL}
DEVICES = _sizes("hsu", 250, 50, 40, alpha=10.0)
LEAF = {"kind": "writer_parts", "num_clients": 105, "val_fraction": VAL, "unseen_fraction": 0.24}
RESERVED = {  # of 20 clients, and of a server that trains, validates and tests
    **{"kind": "server_equal", "num_clients": 20, "train_examples": 125, "val_fraction": VAL},
    **{"pool_per_class": 500, "alpha": 0.5},
    **{"server_per_class": 20, "val_per_class": 20, "test_per_class": 100},
}
FEDERATIONS = (
    _federation("digits", "digits-skew", "label skew", _sizes("hsu", 25, 50, 16, alpha=1.0)),
    _federation(
        "digits", "digits-permuted", "permuted", _sizes("permuted", 24, 50, 60, **CLUSTERS)
    ),
    _federation("digits", "digits-rotated", "rotated", _sizes("rotated", 24, 50, 60, **ANGLES)),
    # The writers of MNIST's test part are unseen.
    _federation("mnist", "mnist-writers", "writers", {**WRITERS, "unseen": "test_part"}, "qmnist"),
    _federation(
        "mnist", "mnist-quantity", "unlike sizes", _sizes("quantity", 60, 75, 100, **SPREAD)
    ),
    _federation("mnist", "mnist-two-shard", "two classes", _sizes("two_shard", 60, 76, 100)),
    _federation("mnist", "mnist-angled", "angles", _sizes("angled", 60, 75, 100, alpha=1.0)),
    _federation("cifar10", "cifar-skew", "label skew", _sizes("hsu", 50, 100, 100, alpha=1.0)),
    _federation(
        "cifar10", "cifar-permuted", "permuted", _sizes("permuted", 48, 100, 100, **CLUSTERS)
    ),
    _federation("cifar10", "cifar-rotated", "rotated", _sizes("rotated", 48, 100, 100, **ANGLES)),
    # Clients with little data, of whom few take part in a round.
    _federation("emnist", "emnist-device", "many clients", DEVICES, "test", rounds=100),
    _federation("femnist", "femnist", "", LEAF, "leaf"),
    # Five architectures in turn, those of pFedMoE.
    _federation(
        *("mnist", "zoo-mnist", "unlike models", _sizes("two_shard", 25, 126, 100)),
        labels=ZOO,
        model="pfedmoe_cnn",
        model_params={**MNIST, "num_classes": 10},
        architectures=tuple({"size": f"mnist{number}"} for number in range(1, 6)),
        cohort=1.0,
        roles=("zoo",),
    ),
    # One model for all is tested on a server that has data.
    _federation(
        *("cifar10", "server-cifar", "a server with data", RESERVED),
        labels=SERVED,
        cohort=0.3,
        roles=("server",),
    ),
)


def demo() -> tuple[Setting, ...]:
    """Two federations of digits with few methods, rounds and trials."""
    few = ("local", "fedavg", "fedavg-plus", "fedrep", "fedem")
    again = tuple(label + settings.AGAIN for label in ("fedavg-plus", "fedem"))
    how = {"rounds": 12, "evaluations": 1, "tuning": tuning(3, RATES), "seeds": (1, 2)}
    how |= {"labels": few + again, "retuning": retuning(3, RATES)}
    return tuple(replace(setting, **how) for setting in FEDERATIONS[:2])


def all_of_them(trials: int, again: bool = False) -> tuple[Setting, ...]:
    """All federations, whose methods have as many `trials` each.

    Args:
      again: whether there are runs with a tuning for each seed.
    """
    return tuple(_with_tuning(setting, trials, again) for setting in FEDERATIONS)


def _with_tuning(setting: Setting, trials: int, again: bool) -> Setting:
    dataset = setting.data.dataset
    how = {"tuning": tuning(trials, RATES, rung=dataset != "digits")}
    if again and "real" in setting.roles:
        retuned = (registered_tunings.REFERENCE, *registered.REPRESENTATIVES)
        rates = registered_tunings.RATES.get(dataset, RATES)
        how |= {
            "labels": (*setting.labels, *(label + settings.AGAIN for label in retuned)),
            "retuning": retuning(registered_tunings.TRIALS, rates),
        }
    return replace(setting, **how)
