"""Construction of Fed-MoE's federations and networks; sections are those of README.md."""

from fedlib.papers.fedmoe.settings import Networks, Setting
from fedlib.spec import Data

SEED = 42  # of the partitions; the code's
READING = {
    "digits": {},
    "femnist": {"source": "leaf", "scaling": "symmetric"},  # section 4.1
    "cifar10": {"scaling": "imagenet"},  # section 4.2
    "sent140": {"train_per_class": 25_000, "test_per_class": 5000},  # of 800,000; ours
    "yelp": {"test_per_class": 2000},  # 10,000 test reviews (section 4.4)
}
TITLES = {
    **{"digits": "Digits", "femnist": "FEMNIST", "cifar10": "CIFAR-10"},
    **{"sent140": "SENT-140", "yelp": "Yelp"},
}
VARIED = {  # by role: ends of the federation's name and of its title
    "reserved": ("-reserved{}", ", {} reserved"),
    "skewed": ("-skewed", ", skewed reserved data"),
    "gates": ("-code", ", as in the code"),
}
NUM_CLASSES = {"digits": 10, "cifar10": 10, "sent140": 2, "yelp": 5}


def cnn(num_classes: int, hidden: int = 2048, **size) -> Networks:
    """The convolutional networks of FEMNIST (section 4.1), and of digits."""
    size = {"hidden": hidden, **size}
    params = {"num_classes": num_classes, **size}
    return Networks("fedmoe_cnn", params, "fedmoe_cnn", size, widths=("hidden",))


def resnet(width: int = 64) -> Networks:
    """The networks of CIFAR-10 (section 4.2)."""
    size = {"width": width, "augment": True}
    params = {"num_classes": 10, **size}
    return Networks("cifar_resnet18", params, "cifar_resnet18", size, widths=("width",))


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
    dataset: str,
    num_clients: int,
    partition: dict,
    labels: tuple[str, ...],
    roles: tuple[str, ...],
    networks: Networks,
    preset: str,
    notes: tuple[str, ...] = (),
    **about,
) -> Setting:
    """The setting on a federation whose name says what is `VARIED` in its first role."""
    reserved = _reserved(dataset, partition)
    end, what = (text.format(reserved) for text in VARIED.get(roles[0], ("", "")))
    data = Data(
        name=f"{dataset}-m{num_clients}{end}",
        dataset=dataset,
        params=READING[dataset],
        partition=partition,
        seed=SEED,
        title=f"{TITLES[dataset]}, M = {num_clients}{what}",
        partition_label=partition["kind"],
        family=TITLES[dataset],
        notes=notes,
    )
    return Setting(
        data=data,
        labels=tuple(dict.fromkeys(labels)),
        networks=networks,
        preset=preset,
        num_clients=num_clients,
        roles=roles,
        reserved=reserved,
        **about,
    )


def _reserved(dataset: str, partition: dict) -> int | None:
    """Number of the server's training examples, if the declaration has it."""
    if partition["kind"] == "writer_groups":
        return partition["server_examples"]
    return NUM_CLASSES[dataset] * partition["server_per_class"]
