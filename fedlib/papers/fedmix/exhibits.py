"""Tables and figures of FedMix. Numbers of tables and figures in captions are the paper's."""

from collections.abc import Callable, Sequence

from fedlib.papers._frame import each, everything, on
from fedlib.papers.fedmix import settings
from fedlib.papers.fedmix.settings import ETAS, LENET_LINES, MANY_EXPERTS, ROTATION_LINES, Setting
from fedlib.spec import experts, figures, tables
from fedlib.spec.exhibits import Exhibit

COMPARED = ("fedavg", "biased-fedavg", "local-global", "fedmix-k2", "fedmix-k4", "fedmix-k10")
LINES = (*LENET_LINES, "fedmix-k4-eta0.99", "fedmix-k10-eta0.9")  # the last two: CIFAR-100
BY_ETA = tuple(f"fedmix-k4-eta{eta:g}" for eta in ETAS)
BY_EXPERTS = ("fedavg", "biased-fedavg", *(f"fedmix-k{number}" for number in MANY_EXPERTS))

MEAN = {"metric": "accuracy_client_mean"}
# Pooled over validation sets, so that all examples of their union have equal weights (section 3).
NEW_SHARD = {"protocol": "new_shard", "metric": "accuracy"}
FINETUNED = {"protocol": "finetuned", **MEAN}
BY_TRAFFIC = {"scale": "linear"}

WAYS = [
    {"title": "Known clients"},
    {"title": "After local fine-tuning", "protocol": "finetuned"},
    {"title": "New shard, no labels", **NEW_SHARD},
    {"title": "New clients with labels", "group": "unseen"},
    {"title": "New clients, no labels", "group": "unseen", "protocol": "new_shard"},
]
APPENDIX_F = [
    {"title": "Known clients, validation", "split": "val", "key": "known"},
    {"title": "New shard, p(s)", **NEW_SHARD},
    {"title": "New shard, p(s|x) of VAEs", "protocol": "new_shard_vae", "metric": "accuracy"},
]
SETS = {"val": "On validation sets.", "test": "On test sets."}
CURVES = {  # by role: number, title and caption
    "accuracy": (MEAN, "Accuracy", "The paper's Figure 4."),
    "new_shard": (NEW_SHARD, "New shard", "The paper's Figure 12: shards without labels."),
    "finetuned": (
        *(FINETUNED, "Fine-tuned", "The paper's Figure 13: after a round of local training."),
    ),
}


def ways(shown: Sequence[Setting]) -> list[dict]:
    """Columns of the table of protocols; new clients only if some federation has any."""
    new = any(setting.data.partition.get("unseen_fraction") for setting in shown)
    return [way for way in WAYS if new or way.get("group") != "unseen"]


def window(shown: Sequence[Setting]) -> int:
    """Rounds of the sliding mean [R]: 50 of the paper's 2,000, at least 5."""
    return max(5, min(50, max(setting.rounds for setting in shown) // 10))


def first_of(*labels: str) -> Callable[[Sequence[Setting]], tuple[str, ...]]:
    """The first of these labels that has a run."""
    return lambda shown: tuple(label for label in labels if label in everything(shown))[:1]


def _curves(role: str, split: str) -> dict[str, Exhibit]:
    """Curves over traffic and over rounds; names end in "_test" for the split "test"."""
    number, title, figure = CURVES[role]
    suffix = {"val": "", "test": "_test"}[split]
    shown = {
        "caption": f"{figure} {SETS[split]}",
        "labels": LINES,
        "federations": on(role, where=lambda setting: setting.split == split),
        "split": split,
        **number,
    }
    return {
        f"{role}_over_traffic{suffix}": figures.AccuracyOverBytes(
            f"{title} over communication", **shown, **BY_TRAFFIC
        ),
        f"{role}_over_rounds{suffix}": figures.AccuracyOverRounds(f"{title} over rounds", **shown),
    }


def _sweeps(
    role: str, title: str, labels: tuple[str, ...], known: str, new: str
) -> dict[str, Exhibit]:
    """Figure 11 for known clients and, of the same runs, for a new shard."""
    shown = {"split": "val", **BY_TRAFFIC}
    figure = f"The paper's Figure {known}: known clients. {SETS['val']}"
    shard = f"The paper's Figure {new}: a shard without labels, all validation examples of all"
    return {
        role: figures.AccuracyOverBytes(title, figure, labels, on(role), **MEAN, **shown),
        f"{role}_new_shard": figures.AccuracyOverBytes(
            *(f"{title}, new shard", f"{shard} clients.", labels, on(role)), **NEW_SHARD, **shown
        ),
    }


TABLES = {
    "accuracy_and_traffic": tables.AccuracyAndTraffic(
        "Accuracy and communication",
        "The paper's Table 1: the server's parameters, on CIFAR-10 after the last round, on "
        "CIFAR-100 the mean of the last ten evaluations, on FEMNIST over the last 2,000 rounds. "
        "FedAvg's 137.3 GB on CIFAR-10 and the 1,130 GB on CIFAR-100 break the rule of all others.",
        COMPARED,
        on("accuracy"),
        averaged=each(lambda setting: settings.AVERAGED.get(setting.data.name)),
        published="table1",
    ),
    "protocols": tables.Views(
        "Known clients, new shards and new clients",
        "Test sets after the last round: means over clients, and over examples for a new shard "
        "without labels. The paper has curves on validation sets, and no numbers.",
        (*LENET_LINES, *BY_ETA, *LINES),
        on("views"),
        columns=ways,
    ),
    "new_shard_by_autoencoders": tables.Views(
        "New shards: gates weighed by p(s) or by autoencoders",
        "Appendix F: a client's gate counts as far as its autoencoder finds the input likely.",
        ("fedmix-vae", "fedavg"),
        on("vae"),
        columns=APPENDIX_F,
        published="appendix-f-{label}",
    ),
    "cost": tables.Cost(
        "What training costs",
        "Training examples, arithmetic and traffic of all clients together.",
        LENET_LINES,
        on("accuracy"),
    ),
}

FIGURES = {
    **_curves("accuracy", "val"),
    **_curves("accuracy", "test"),
    "specialisation": figures.AccuracyOverRounds(
        "Specialists or an ensemble",
        f"The paper's Figure 3: with the entropy of q experts do not specialise. {SETS['val']}",
        ("fedmix-k4", "fedmix-k4-entropy", "fedavg"),
        on("ablation"),
        **MEAN,
        split="val",
    ),
    "rotations": figures.AccuracyOverRounds(
        "Rotated digits",
        f"The paper's Figures 5 and 6: q may depend on the label or on the angle. {SETS['test']}",
        ROTATION_LINES,
        on("rotations"),
        **MEAN,
    ),
    **_sweeps("experts", "Number of experts", BY_EXPERTS, "11a", "11c"),
    **_sweeps("pruning", "Pruning of experts", ("fedavg", "fedmix-k4", *BY_ETA), "11b", "11d"),
    **_curves("new_shard", "val"),
    **_curves("finetuned", "val"),
    **_curves("new_shard", "test"),
    **_curves("finetuned", "test"),
    "gradient_divergence": experts.GradientDivergence(
        "Divergence of the clients' updates",
        "The paper's Figure 1: half of one minus the cosine between two clients' differences, the "
        "weighted mean of pairs, the sum over tensors, and the mean over experts.",
        ("fedavg", "fedmix-k4"),
        on("divergence"),
        window=window,
    ),
    "clusters": experts.ClientMatrices(
        "Clusters of clients from permuted labels",
        "The paper's Figures 7 and 8: a client's permutation, and its experts' q(z|s).",
        everything,
        on("clusters"),
    ),
    "experts_of_labels": experts.TablesOverTime(
        "Which expert is for which label",
        "The paper's Figure 14a: q(z|y) at the server after some rounds.",
        first_of("fedmix-k4-long", "fedmix-k4"),
        on("tables"),
    ),
    "collapse": experts.TablesOverTime(
        "Collapse of a plain mixture",
        "The paper's Figure 14b: the gate's mean probability of each expert, by label, where the "
        "likelihood of the mixture is maximised directly, in one epoch on all data in one place.",
        everything,
        on("collapse"),
        values="p(expert | x), mean by label",
    ),
    "label_leakage": figures.LabelLeakage(
        "Labels read from a first update",
        "The paper's Figures 9 and 10: a client's share of each label, and the share read from "
        "the change of the output bias.",
        everything,
        on("leakage"),
    ),
}
