"""The federations and runs of pFedMoE at every scale.

Sections are those of README.md. Client data are those of `path_line`: a few classes each, with
about equal shares of a class, and 8:2 training and test examples (section 4.2).
"""

from fedlib.papers._frame import DIGITS_NOTE, TITLES, Scale
from fedlib.papers.pfedmoe import settings
from fedlib.papers.pfedmoe.settings import Images, Setting, same
from fedlib.spec import Data

SEED = 42  # of the partitions; the sibling code's
SPLIT = {"train_fraction": 0.8}  # section 4.2
LABELS = {  # of partitions
    "path_line": "path{classes_per_client}",
    "path_dir": "path{classes_per_client}-dir{alpha:g}",
    "dirichlet": "dirichlet{alpha:g}",
}
CLIENTS = (10, 50, 100)  # N (section 4.4)
TARGETS = {  # section 6; none is given for MNIST
    "cifar10": {10: 0.9, 50: 0.9, 100: 0.9},
    "cifar100": {10: 0.7, 50: 0.6, 100: 0.5},
}
HELD = {"mnist": 2, "cifar10": 2, "cifar100": 10}  # classes of a client (section 4.1)
CLASSES = {"cifar10": (4, 6, 8, 10), "cifar100": (30, 50, 70, 90, 100)}  # section 6, besides HELD
GAMMAS = (0.1, 0.3, 0.5, 1.0)  # section 4.3
EVERYTHING = (*settings.MAIN, *settings.HOMOGENEOUS)

COLOUR = {"in_channels": 3, "side": 32, "augment": True}
ZOO = tuple({"size": f"cnn{number}"} for number in range(1, 6))
IMAGES = {
    "cifar10": Images({"num_classes": 10, **COLOUR}, ZOO),
    "cifar100": Images({"num_classes": 100, **COLOUR}, ZOO),
    "mnist": Images(
        {"num_classes": 10, "in_channels": 1, "side": 28},
        tuple({"size": f"mnist{number}"} for number in range(1, 6)),
    ),
    "digits": Images(
        {"num_classes": 10, "in_channels": 1, "side": 8, "padding": 2},
        (
            {"channels": [8, 16], "hidden": [96, 32]},
            {"channels": [8, 8], "hidden": [96, 32]},
            {"channels": [8, 16], "hidden": [64, 32]},
            {"channels": [8, 16], "hidden": [48, 32]},
            {"channels": [8, 16], "hidden": [32, 32]},
        ),
    ),
}
SCALING = {"cifar10": {"scaling": "imagenet"}}  # section 4.1, intentionally ImageNet's


def demo() -> Scale:
    """Digits in place of all data sets, each method once."""
    # Our rate, for visible effects in few rounds; chosen on seed 7, which is not shown.
    small = {"rounds": 8, "batch_size": 16, "lr": 0.05, "evaluate_every": 2}
    small |= {"notes": (DIGITS_NOTE,), "fraction": 0.6}
    return (
        "demo: 60 % of the digits, small networks and a few rounds; shows that everything runs, "
        "not what the paper claims.",
        (0,),
        (
            _federation(
                *("digits", 10),
                labels=(*settings.MAIN, *same(settings.NEW), "pfedmoe-fixed"),
                roles=("main", "gate", "representations", "classes"),
                target=0.6,
                **small,
            ),
            _with_classes("digits", 4, labels=("pfedmoe",), **small),
        ),
    )


def reduced() -> Scale:
    """A tenth of the real CIFAR-10 and MNIST, ten clients, few rounds: three hours of a core."""
    tenth = {"fraction": 0.1, "batch_size": 64}
    tenth["notes"] = ("A random tenth of the images, one epoch a round in batches of 64.",)
    digits = {"rounds": 5, "evaluate_every": 1, "repeated": settings.FEW[:2], **tenth}
    gates = ("pfedmoe-fixed", "pfedmoe-batch1d")
    return (
        "reduced: ten clients with a tenth of the real data sets, one epoch a round and few "
        "rounds, at one setting instead of the best of a grid; three seeds of pFedMoE, its "
        "gates and the four baselines of the criteria, one of all others.",
        settings.SEEDS[:1],
        (
            _federation(
                *("cifar10", 10),
                labels=(*EVERYTHING, *gates),
                roles=("main", "compared", "gate", "representations"),
                rounds=40,
                target=0.8,
                repeated=(*settings.COMPARED, *same(settings.COMPARED), *gates),
                **tenth,
            ),
            _federation(
                *("mnist", 10),
                labels=EVERYTHING,
                roles=("main", "classes", "shares"),
                target=0.95,
                **digits,
            ),
            *(_with_classes("mnist", s, labels=settings.FEW[:2], **digits) for s in (4, 10)),
            _uneven("mnist", labels=settings.FEW[:2], **digits),
            *(_practical("mnist", g, labels=settings.FEW[:2], **digits) for g in (0.1, 1.0)),
        ),
    )


MORE = {  # runs and roles of some federations
    ("cifar10", 10): {
        "labels": (*EVERYTHING, *settings.GATES[1:]),
        "roles": ("main", "classes", "gate", "representations", "shares"),
    },
    ("cifar100", 10): {"roles": ("main", "classes")},
}


def full() -> Scale:
    """Data sets, federations and the grid's largest rounds and epochs (section 5)."""
    paper = {"rounds": 500, "epochs": 10, "batch_size": 512}
    usual = {"labels": EVERYTHING, "roles": ("main",), **paper}
    few = {"labels": settings.FEW, **paper}
    return (
        "full: the paper's data sets, networks and federations, 500 rounds of 10 epochs; one "
        "setting of the paper's grid, of which it shows the best for each method.",
        settings.SEEDS,
        (
            *(
                _federation(
                    dataset,
                    number,
                    target=TARGETS.get(dataset, {}).get(number),
                    **usual | MORE.get((dataset, number), {}),
                )
                for dataset in HELD
                for number in CLIENTS
            ),
            *(_with_classes(dataset, s, **few) for dataset in CLASSES for s in CLASSES[dataset]),
            *(_practical(dataset, gamma, **few) for dataset in CLASSES for gamma in GAMMAS),
            _uneven("cifar10", **few),
        ),
    )


def _path_line(num_clients: int, classes: int) -> dict:
    """Clients with `classes` classes each (section 4.2)."""
    return {"kind": "path_line", "num_clients": num_clients, "classes_per_client": classes}


def _federation(dataset: str, num_clients: int, **about) -> Setting:
    """Clients with the paper's number of classes."""
    name, partition = f"n{num_clients}", _path_line(num_clients, HELD.get(dataset, 2))
    about |= {"published": name if dataset in HELD else None}
    return _setting(dataset, name, f"N = {num_clients}", partition, **about)


def _with_classes(dataset: str, classes: int, **about) -> Setting:
    """Ten clients with another number of classes; evaluated like the family with ten clients."""
    about |= {"family": "N = 10", "roles": ("classes",)}
    title = f"N = 10, {classes} classes"
    return _setting(dataset, f"n10-s{classes}", title, _path_line(10, classes), **about)


def _uneven(dataset: str, **about) -> Setting:
    """Ten clients with the paper's number of classes and Dirichlet shares of them."""
    partition = {**_path_line(10, HELD[dataset]), "kind": "path_dir", "alpha": settings.UNEVEN}
    name, title = f"n10-dir{settings.UNEVEN:g}", "N = 10, uneven shares"
    return _setting(dataset, name, title, partition, roles=("shares",), **about)


def _practical(dataset: str, gamma: float, **about) -> Setting:
    """Ten clients with all classes, in Dirichlet proportions (section 4.3)."""
    partition = {"kind": "dirichlet", "num_clients": 10, "alpha": gamma}
    about |= {"family": "Dirichlet", "roles": ("gamma",)}
    return _setting(dataset, f"gamma{gamma:g}", f"gamma = {gamma:g}", partition, **about)


def _setting(
    dataset: str,
    name: str,
    title: str,
    partition: dict,
    *,
    family: str = "",
    fraction: float = 1.0,
    notes: tuple[str, ...] = (),
    **about,
) -> Setting:
    """The setting `about` on a partition of a random `fraction` of a data set."""
    used = SPLIT | ({"fraction": fraction} if fraction < 1 else {})
    data = Data(
        name=f"{dataset}-{name}",
        dataset=dataset,
        params=SCALING.get(dataset, {}),
        partition={**partition, **used},
        seed=SEED,
        title=f"{TITLES[dataset]}, {title}",
        partition_label=LABELS[partition["kind"]].format(**partition),
        family=family and f"{TITLES[dataset]}, {family}",
        notes=notes,
    )
    return Setting(data=data, images=IMAGES[dataset], **about)
