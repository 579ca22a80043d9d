"""Tables and figures of FedMix. Numbers of tables and figures in captions are the paper's."""

from collections.abc import Callable, Sequence
from typing import Any

from fedlib.papers._frame import each, everything, on, who_has_what
from fedlib.papers.fedmix.settings import (
    ETAS,
    LENET_LINES,
    MANY_EXPERTS,
    ROTATION_LINES,
    Setting,
)
from fedlib.spec import experts, figures, tables
from fedlib.spec.exhibits import Exhibit

COMPARED = ("fedavg", "biased-fedavg", "local-global", "fedmix-k2", "fedmix-k4", "fedmix-k10")
LINES = (*LENET_LINES, "fedmix-k4-eta0.99", "fedmix-k10-eta0.9")  # the last two: CIFAR-100
BY_ETA = tuple(f"fedmix-k4-eta{eta:g}" for eta in ETAS)
BY_EXPERTS = ("fedavg", "biased-fedavg", *(f"fedmix-k{number}" for number in MANY_EXPERTS))

MEAN = {"metric": "accuracy_client_mean"}
# Pooled over validation sets, so that all examples of their union have equal weights (section 3).
NEW_SHARD = {"protocol": "new_shard", "metric": "accuracy"}
ASKS = {
    "new_shard": "How accurate are models on data that no client trained on?",
    "finetuned": "Does fine-tuning change the order of methods?",
}
FINETUNED = {"protocol": "finetuned", **MEAN}
BY_TRAFFIC = {"unit": "GB", "scale": "linear"}
SHADED = {"shaded": "fedmix"}  # for sweeps of FedMix alone

AVERAGED = {"cifar100": {"evaluations": 10}, "femnist": {"rounds": 2000}}  # Table 1
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
FIGURE_12 = "The paper's Figure 12: shards without labels."
FIGURE_13 = "The paper's Figure 13: after a round of local training."
SETS = {"val": "On validation sets.", "test": "On test sets."}
ON_VAL = "Mean client accuracy on validation sets."
ON_TEST = "Mean client accuracy on test sets, as these federations have no validation sets."


def ways(shown: Sequence[Setting]) -> list[dict]:
    """Columns of the table of protocols; new clients only if some federation has any."""
    new = any(setting.data.partition.get("unseen_fraction") for setting in shown)
    return [way for way in WAYS if new or way.get("group") != "unseen"]


def traffic(shown: Sequence[Setting]) -> dict[str, float] | None:
    """Ends of the paper's axes of traffic, in GB, by federation."""
    return each(lambda setting: setting.gb)(shown) or None


def window(shown: Sequence[Setting]) -> int:
    """Rounds of the sliding mean [R]: 50 of the paper's 2,000, at least 5."""
    return max(5, min(50, max(setting.rounds for setting in shown) // 10))


def first_of(*labels: str) -> Callable[[Sequence[Setting]], tuple[str, ...]]:
    """The first of these labels that has a run."""
    return lambda shown: tuple(label for label in labels if label in everything(shown))[:1]


def with_curves_of(role: str, split: str) -> dict[str, Any]:
    """Fields of a figure of curves, for the federations with the role and this split."""
    federations = on(role, where=lambda setting: setting.split == split)
    return {"labels": LINES, "federations": federations, "split": split}


def _of_protocol(
    role: str, split: str, protocol: dict, title: str, caption: str
) -> dict[str, Exhibit]:
    """Curves of another protocol over traffic and rounds; names end in "_test" for split test."""
    suffix = {"val": "", "test": "_test"}[split]
    shown = {**with_curves_of(role, split), **protocol, "asks": ASKS[role]}
    return {
        f"{role}_over_traffic{suffix}": figures.AccuracyOverBytes(
            f"{title} over communication", caption, **shown, **BY_TRAFFIC, until=traffic
        ),
        f"{role}_over_rounds{suffix}": figures.AccuracyOverRounds(
            f"{title} over rounds", caption, **shown
        ),
    }


TABLES = {
    "accuracy_and_traffic": tables.AccuracyAndTraffic(
        "Accuracy and communication",
        "The paper's Table 1: mean client test accuracy with the server's parameters, "
        "on CIFAR-10 after the last round, on CIFAR-100 the mean of the last ten evaluations, "
        "on FEMNIST over the last 2,000 rounds. FedAvg's 137.3 GB on CIFAR-10 and the 1,130 GB "
        "of two rows on CIFAR-100 do not follow the rule that all others do.",
        COMPARED,
        on("accuracy"),
        averaged=each(lambda setting: AVERAGED.get(setting.data.name)),
        published="table1",
    ),
    "paired_differences": tables.PairedDifferences(
        "FedMix and each other method, client by client",
        "Intervals over clients, which one training suffices for. The paper prints no such table.",
        COMPARED,
        on("accuracy"),
        of="fedmix-k4",
    ),
    "protocols": tables.Views(
        "Known clients, new shards and new clients",
        "Accuracy on test sets after the last round: means over clients, but for a new "
        "shard without labels, for which all examples count the same. The paper shows curves "
        "of these on validation sets and prints no numbers.",
        (*LENET_LINES, *BY_ETA, *LINES),
        on("views"),
        columns=ways,
        asks="How accurate are models on known clients, new shards and new clients?",
    ),
    "new_shard_by_autoencoders": tables.Views(
        "New shards: gates weighed by p(s) or by autoencoders",
        "Appendix F of the paper: how likely an input is under the autoencoder of each "
        "client says whose gate to trust.",
        ("fedmix-vae", "fedavg"),
        on("vae"),
        columns=APPENDIX_F,
        published="appendix-f-{label}",
        asks="Which gate is better on new shards?",
    ),
    "cluster_recovery": tables.ClusterRecovery(
        "Clusters recovered from permuted labels",
        "Purity of the clusters that clients form by their main expert, and how many "
        "experts are anybody's main one, over seeds. The paper shows one run, in which four "
        "experts found the four permutations.",
        everything,
        on("clusters"),
    ),
    "cost": tables.Cost(
        "What training costs",
        "Training examples, arithmetic and traffic of all clients together.",
        LENET_LINES,
        on("accuracy"),
    ),
}

FIGURES = {
    "accuracy_over_traffic": figures.AccuracyOverBytes(
        "Accuracy over communication",
        f"The paper's Figure 4, above. {ON_VAL}",
        **with_curves_of("accuracy", "val"),
        **MEAN,
        **BY_TRAFFIC,
        until=traffic,
    ),
    "accuracy_over_rounds": figures.AccuracyOverRounds(
        "Accuracy over rounds",
        f"The paper's Figure 4, below. {ON_VAL}",
        **with_curves_of("accuracy", "val"),
        **MEAN,
    ),
    "accuracy_over_traffic_test": figures.AccuracyOverBytes(
        "Accuracy over communication",
        f"The paper's Figure 4, above. {ON_TEST}",
        **with_curves_of("accuracy", "test"),
        **MEAN,
        **BY_TRAFFIC,
        until=traffic,
    ),
    "accuracy_over_rounds_test": figures.AccuracyOverRounds(
        "Accuracy over rounds",
        f"The paper's Figure 4, below. {ON_TEST}",
        **with_curves_of("accuracy", "test"),
        **MEAN,
    ),
    "specialisation": figures.AccuracyOverRounds(
        "Specialists or an ensemble",
        "The paper's Figure 3: with the entropy of q in the clients' objective, "
        f"experts do not specialise. {ON_VAL}",
        ("fedmix-k4", "fedmix-k4-entropy", "fedavg"),
        on("ablation"),
        **MEAN,
        split="val",
        asks="Do experts specialise, or do they act as an ensemble?",
    ),
    "rotations": figures.AccuracyOverRounds(
        "Rotated digits",
        f"The paper's Figures 5 and 6: q may depend on the label or on the angle. {ON_TEST}",
        ROTATION_LINES,
        on("rotations"),
        **MEAN,
        asks="Do experts help where clients' images are rotated?",
    ),
    "experts": figures.AccuracyOverBytes(
        "Number of experts",
        f"The paper's Figure 11a: known clients. {ON_VAL}",
        BY_EXPERTS,
        on("experts"),
        **MEAN,
        split="val",
        **BY_TRAFFIC,
        **SHADED,
        asks="Do more experts help?",
    ),
    "experts_new_shard": figures.AccuracyOverBytes(
        "Number of experts, new shard",
        "The paper's Figure 11c: a shard without labels, all validation examples of all clients.",
        BY_EXPERTS,
        on("experts"),
        **NEW_SHARD,
        split="val",
        **BY_TRAFFIC,
        **SHADED,
        asks="Do more experts help on a new shard?",
    ),
    "pruning": figures.AccuracyOverBytes(
        "Pruning of experts",
        f"The paper's Figure 11b: known clients. {ON_VAL}",
        ("fedavg", "fedmix-k4", *BY_ETA),
        on("pruning"),
        **MEAN,
        split="val",
        **BY_TRAFFIC,
        **SHADED,
        asks="What does pruning save, and what does it cost in accuracy?",
    ),
    "pruning_new_shard": figures.AccuracyOverBytes(
        "Pruning of experts, new shard",
        "The paper's Figure 11d: a shard without labels, all validation examples of all clients.",
        ("fedavg", "fedmix-k4", *BY_ETA),
        on("pruning"),
        **NEW_SHARD,
        split="val",
        **BY_TRAFFIC,
        **SHADED,
        asks="Does pruning hurt on a new shard?",
    ),
    **_of_protocol("new_shard", "val", NEW_SHARD, "New shard", f"{FIGURE_12} {SETS['val']}"),
    **_of_protocol("finetuned", "val", FINETUNED, "Fine-tuned", f"{FIGURE_13} {SETS['val']}"),
    **_of_protocol("new_shard", "test", NEW_SHARD, "New shard", f"{FIGURE_12} {SETS['test']}"),
    **_of_protocol("finetuned", "test", FINETUNED, "Fine-tuned", f"{FIGURE_13} {SETS['test']}"),
    "gradient_divergence": experts.GradientDivergence(
        "Divergence of the clients' updates",
        "The paper's Figure 1: half of one minus the cosine between two clients' "
        "differences, averaged over pairs by weight and added up over the tensors of a model; "
        "the mean over experts.",
        ("fedavg", "fedmix-k4"),
        on("divergence"),
        window=window,
    ),
    "clusters": experts.ClientMatrices(
        "Clusters of clients from permuted labels",
        "The paper's Figures 7 and 8: to which permutation a client belongs, and how "
        "probable its experts are for it, q(z|s).",
        everything,
        on("clusters"),
    ),
    "experts_of_labels": experts.TablesOverTime(
        "Which expert is for which label",
        "The paper's Figure 14a: q(z|y) at the server after some rounds.",
        first_of("fedmix-k4-long", "fedmix-k4"),
        on("tables"),
        asks="Which expert takes which label?",
    ),
    "collapse": experts.TablesOverTime(
        "Collapse of a plain mixture",
        "The paper's Figure 14b: mean probability that the gate gives each expert, by "
        "label, while the likelihood of the mixture is maximised directly, on all data in one "
        "place. The rounds together have the steps of one epoch.",
        everything,
        on("collapse"),
        values="p(expert | x), mean by label",
        asks="Does a plain mixture collapse to one expert?",
    ),
    "label_leakage": figures.LabelLeakage(
        "Labels read from a first update",
        "The paper's Figures 9 and 10: the share of each label among a client's "
        "examples, and the one read from the change of the output bias.",
        everything,
        on("leakage"),
    ),
    "client_labels": who_has_what("accuracy", "rotations", "clusters", "vae"),
}
