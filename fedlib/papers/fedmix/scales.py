"""The runs of FedMix at every scale.

"Paper" is Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission, which has no
official code; sections are those of README.md, and F1 to F13 its decisions.
"""

from fedlib.papers._frame import DIGITS_NOTE, Scale
from fedlib.papers.fedmix.federations import setting_of
from fedlib.papers.fedmix.settings import ETAS, LENET_LINES, MANY_EXPERTS, ROTATION_LINES

SEEDS = (0, 1, 2)  # the paper shows single runs; three of ours (F9)
CLUSTER_LABELS = ("clients-k4-early", "clients-k4", "clients-k3", "clients-k5")
CLUSTER_SEEDS = tuple(range(10))  # finding the clusters depends on the seed (7.2)
TABLE_ROUNDS = (200, 1000, 2000, 4000)  # Figure 14a
FOLLOWED = ("new_shard", "finetuned")  # Figures 12 and 13
ALL_CURVES = (
    *("accuracy", "divergence", "ablation", "experts", "pruning", "new_shard", "finetuned"),
    *("tables", "views"),
)
# One round of all clients, from which the server infers labels (section 7.5).
LEAK = {"cohort": 1, "labels": ("leak-step", "leak-epoch"), "rounds": 1, "seeds": (0,)}
LEAK |= {"roles": ("leakage",)}
# One client with all data that trains one epoch, in sixteen parts of ours (section 7.4).
CENTRAL = {"cohort": 1, "labels": ("plain-k4",), "rounds": 16, "seeds": (0,), "evaluate_every": 4}
CENTRAL |= {"roles": ("collapse",), "table_rounds": (1, 4, 16)}
# All clients, three epochs, four experts (sections 5.5 and 7.2).
CLUSTERS = {"cohort": 20, "epochs": 3, "labels": ("clients-k4",), "roles": ("clusters",)}
TWO_SHARD = {"labels": ("fedmix-vae", "fedavg"), "roles": ("vae",)}
DIGITS_MLP = {"in_features": 64, "hidden": [64, 32], "num_classes": 10}
MNIST_MLP = {"in_features": 784, "hidden": [200, 200], "num_classes": 10}  # sections 5 and 6
VAE = {"in_features": 784, "hidden": [512, 256], "latent": 32}  # appendix F (section 7.6)


def image(in_channels: int, side: int, num_classes: int) -> dict:
    """Arguments of a network for images of `side` x `side` pixels."""
    return {"in_channels": in_channels, "side": side, "num_classes": num_classes}


def demo() -> Scale:
    """Digits in place of all data sets, with settings of ours at which experts specialise."""
    small = ("lenet5", {**image(1, 8, 10), "channels": 8, "hidden": 64, "padding": 2})
    digits = {"model": ("mlp", DIGITS_MLP), "batch_size": 20, "evaluate_every": 5}
    digits |= {"server_lr": 0.03, "notes": (DIGITS_NOTE,)}
    # Steps: the sixteenth part of 0.9 * 1300 examples; with batches of 4 there are too few.
    central = {**CENTRAL, "model": small, "batch_size": 2, "steps": 37}
    return (
        "demo: small federations that need no download and settings chosen for them, the server's "
        "rate thirty times the paper's; shows that everything runs, not what the paper claims.",
        (0,),
        (
            setting_of(
                "digits",
                cohort=4,
                labels=(
                    *("fedavg", "biased-fedavg", "local-global", "fedmix-k2", "fedmix-k4"),
                    *("biased-fedmix-k4", "fedmix-k4-eta0.9", "fedmix-k4-entropy"),
                ),
                rounds=40,
                followed=FOLLOWED,
                table_rounds=(10, 20, 40),
                roles=ALL_CURVES,
                **digits,
            ),
            setting_of("digits-leak", **digits | LEAK | {"model": small}),
            setting_of(
                "angled-digits-labels",
                cohort=5,
                rounds=30,
                labels=ROTATION_LINES,
                roles=("rotations",),
                seeds=(0,),
                **digits,
            ),
            setting_of("permuted-digits", **digits | CLUSTERS | {"rounds": 12, "batch_size": 10}),
            setting_of(
                "two-shard-digits",
                cohort=5,
                rounds=15,
                vae_epochs=50,
                vae={"in_features": 64, "hidden": [32], "latent": 8},
                **digits | TWO_SHARD,
            ),
            setting_of("digits-central", **digits | central),
        ),
    )


def reduced() -> Scale:
    """Real CIFAR-10 and MNIST with fewer rounds and smaller experts."""
    note = (
        "LeNet-5 with 8 channels and 128 features instead of 32 and 512, and ten times the "
        "server's rate for a tenth of the rounds."
    )
    small = ("lenet5", {**image(3, 32, 10), "channels": 8, "hidden": 128})
    cifar = {"model": small, "rounds": 200, "batch_size": 64, "evaluate_every": 20}
    cifar |= {"server_lr": 0.01, "notes": (note,)}
    fewer = {"rounds": 15, "evaluate_every": 5, "seeds": (0, 1, 2)}
    fewer["notes"] = (note, "500 training images per client instead of 2,500.")
    return (
        "reduced: the paper's partitions of real CIFAR-10 and MNIST with fewer rounds, smaller "
        "experts for CIFAR-10.",
        (0,),
        (
            setting_of(
                "cifar10",
                labels=("fedavg", "biased-fedavg", "local-global", "fedmix-k2", "fedmix-k4"),
                table_rounds=(20, 100, 200),
                roles=("accuracy", "divergence", "tables", "views"),
                **cifar,
            ),
            setting_of("cifar10-leak", **cifar | LEAK),
            setting_of(
                "permuted-cifar10",
                sizes={"train_examples": 500, "test_examples": 100},
                **cifar | CLUSTERS | fewer,
            ),
            setting_of(
                "two-shard-mnist",
                vae={"in_features": 784, "hidden": [128], "latent": 16},
                vae_epochs=15,
                model=("mlp", MNIST_MLP),
                rounds=100,
                batch_size=10,
                evaluate_every=20,
                server_lr=0.005,
                notes=(
                    "100 rounds instead of 600, and five times the server's rate; autoencoders of "
                    "one hidden layer, trained for at most 15 epochs.",
                ),
                **TWO_SHARD,
            ),
            setting_of("cifar10-central", **cifar | CENTRAL, steps=44),
        ),
    )


def full() -> Scale:
    """The paper's settings where it states them, otherwise those of section 10.

    Cohorts, batches, epochs, rounds and networks are those of the table in section 5, rounds of
    CIFAR-100 those of Table 1 (F12), groups of the ResNet those of section 6, and rounds between
    evaluations those of F8; rotated MNIST is F7's.
    """
    cifar = {"model": ("lenet5", image(3, 32, 10)), "batch_size": 64}
    mnist = {"model": ("lenet5", image(1, 28, 10)), "batch_size": 64, "rounds": 1000}
    rotations = {"labels": ROTATION_LINES, "roles": ("rotations",), **mnist}
    return (
        "full: the paper's data, models, rounds and hyper-parameters; what it does not state is "
        "decided in section 10 of the specification.",
        SEEDS,
        (
            setting_of(
                "cifar10",
                rounds=2000,
                labels=(
                    *LENET_LINES,
                    *(f"fedmix-k{k}" for k in MANY_EXPERTS if k not in (2, 4, 10)),
                    *(f"fedmix-k4-eta{eta:g}" for eta in ETAS),
                    *("fedmix-k4-entropy", "fedmix-k4-long"),
                ),
                own_rounds={"fedmix-k4-long": TABLE_ROUNDS[-1]},
                followed=FOLLOWED,
                table_rounds=TABLE_ROUNDS,
                roles=ALL_CURVES,
                **cifar,
            ),
            setting_of("cifar10-leak", **cifar | LEAK),
            setting_of(
                "cifar100",
                model=("resnet20", {"num_classes": 100, "norm_groups": 2, "augment": True}),
                batch_size=20,
                rounds=6000,
                own_rounds={"fedavg": 30_000, "fedmix-k2": 30_000, "fedmix-k4": 24_000},  # Table 1
                evaluate_every=200,
                labels=(
                    *("fedavg", "biased-fedavg", "fedmix-k4", "fedmix-k2", "fedmix-k10"),
                    *("fedmix-k4-eta0.99", "fedmix-k10-eta0.9", "local-global"),
                ),
                followed=("new_shard",),
                roles=("accuracy", "new_shard", "views"),
            ),
            setting_of(
                "femnist",
                num_clients=3400,
                model=("lenet5", image(1, 28, 62)),
                batch_size=20,
                rounds=6000,
                evaluate_every=100,
                labels=LENET_LINES,
                shared_gates=True,
                roles=("accuracy",),
            ),
            setting_of("angled-mnist", **rotations),
            setting_of("angled-mnist-labels", **rotations),
            setting_of(
                "permuted-cifar10",
                rounds=100,
                own_rounds={"clients-k4-early": 10},  # Figure 7
                evaluate_every=10,
                seeds=CLUSTER_SEEDS,
                **cifar | CLUSTERS | {"labels": CLUSTER_LABELS},
            ),
            setting_of(
                "two-shard-mnist",
                model=("mlp", MNIST_MLP),
                rounds=600,
                batch_size=10,
                vae=VAE,
                **TWO_SHARD,
            ),
            # Steps: the sixteenth part of 0.9 * 50,000 examples.
            setting_of("cifar10-central", **cifar | CENTRAL, steps=44),
        ),
    )
