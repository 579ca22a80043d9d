"""Fed-MoE's data sets, networks and partitions; sections are those of README.md."""

from typing import NamedTuple

from fedlib.papers.fedmoe.settings import Networks, Setting
from fedlib.spec import Data

SEED = 42  # of the partitions; the code's
Labels = tuple[str, ...]


class Dataset(NamedTuple):
    """A data set: its title, its networks, and arguments of its `read`."""

    title: str
    networks: Networks
    params: dict = {}


DATASETS = {
    "digits": Dataset("Digits", Networks("fedmoe_cnn", 10, {"hidden": 32, "side": 8}, "hidden")),
    "text": Dataset(
        "Made-up texts",
        Networks(
            *("transformer", 5),
            {"size": "bert-lite", "vocabulary": 200, "max_length": 16, "pool": "mean"},
        ),
        {
            **{"num_clients": 6, "train_examples": 45, "test_examples": 0},
            **{"server_train": 100, "server_val": 50, "server_test": 200, "probe": 50},
        },
    ),
    "femnist": Dataset(  # section 4.1
        "FEMNIST",
        Networks("fedmoe_cnn", 62, {"hidden": 2048, "augment": True}, "hidden"),
        {"source": "leaf", "scaling": "symmetric"},
    ),
    "cifar10": Dataset(  # section 4.2
        "CIFAR-10",
        Networks("cifar_resnet18", 10, {"width": 64, "augment": True}, "width"),
        {"scaling": "imagenet"},
    ),
    "sent140": Dataset(  # section 4.3
        "SENT-140",
        Networks(
            *("transformer", 2, {"size": "bert-base", "pool": "mean"}),
            weights="bert_base_weights",
            gate_weights="bert_base_weights",
        ),
        {"train_per_class": 25_000, "test_per_class": 5000},  # of 800,000; ours
    ),
    "yelp": Dataset(  # section 4.4
        "Yelp",
        Networks(
            *("transformer", 5, {"size": "gpt2-medium", "pool": "mean"}),
            gate={"size": "gpt2"},
            weights="gpt2_medium_weights",
            gate_weights="gpt2_weights",
        ),
        {"test_per_class": 2000},
    ),
}
VARIED = {  # by role: ends of the federation's name and of its title
    "reserved": ("-reserved{}", ", {} reserved"),
    "skewed": ("-skewed", ", skewed reserved data"),
    "gates": ("-code", ", as in the code"),
}


def of_writers(num_clients: int, writers: int, **reserved) -> dict:
    """Groups of writers; ten other writers own the reserved examples (section 4.1)."""
    return {
        **{"kind": "writer_groups", "num_clients": num_clients, "writers_per_client": writers},
        **{"server_writers": 10, "probe_writers": 1, "server_examples": 1280, **reserved},
    }


def of_classes(num_clients: int, **sizes) -> dict:
    """Clients of equal size with Dirichlet(1.0) proportions (section 0)."""
    return {
        **{"kind": "server_equal", "num_clients": num_clients, "pool_per_class": 3750},
        **{"alpha": 1.0, "probe_per_class": 20, **sizes},
    }


def setting_of(
    dataset: str, partition: dict, labels: Labels, roles: Labels, notes: tuple = (), **about
) -> Setting:
    """The setting on a federation whose name says what is `VARIED` in its first role."""
    title, networks, params = DATASETS[dataset]
    clients = {**params, **partition}["num_clients"]
    reserved = partition.get("server_examples")
    if "server_per_class" in partition:
        reserved = networks.num_classes * partition["server_per_class"]
    end, what = (text.format(reserved) for text in VARIED.get(roles[0], ("", "")))
    return Setting(
        data=Data(
            name=f"{dataset}-m{clients}{end}",
            dataset="synthetic_text" if dataset == "text" else dataset,
            params=params,
            partition=partition,
            seed=SEED,
            title=f"{title}, M = {clients}{what}",
            partition_label=partition["kind"],
            family=title,
            notes=notes,
        ),
        labels=tuple(dict.fromkeys(labels)),
        num_clients=clients,
        roles=roles,
        reserved=reserved,
        **{"networks": networks, "preset": dataset, **about},
    )
