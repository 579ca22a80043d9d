"""Tables and figures of Adaptive Expert Models. Numbers of them in captions are the paper's."""

from collections.abc import Sequence

from fedlib.papers._frame import on, who_has_what
from fedlib.papers.adaptive_experts.settings import (
    EXPLORATIONS,
    LOCALS,
    ROLES,
    SCHEDULES,
    Setting,
    of_clusters,
    of_schedule,
)
from fedlib.spec import experts, figures, tables

BOTH = tuple(EXPLORATIONS)
PROTOCOLS = [
    {"name": "moe"},
    {"name": "ifca"},
    {"name": "ensemble"},
    {"name": "finetuned"},
    {"name": "local"},
]
MIXTURES = [{"name": "moe"}, {"name": "moe_gate"}, {"name": "ifca"}]
VARIANTS = {
    "parameter": "exploration",
    "values": [
        {"value": "eps", "title": "ε-greedy"},
        {"value": "none", "title": "No exploration"},
    ],
}
TABLE_2 = "table2-p{p:.1f}-{label}"
BY_P = {"protocols": PROTOCOLS, "parameter": "partition.p"}
BY_CLUSTERS = {
    **{"protocols": PROTOCOLS, "parameter": "num_experts", "symbol": "J"},
    "variants": VARIANTS,
}
TRIALS = (
    "Mean over clients of the accuracy on their own test images, one federated training evaluated "
    "five ways; the spread is over trials."
)


def largest_p(settings: Sequence[Setting]) -> list[Setting]:
    """The federation of Table 2 with the largest majority fraction."""
    return on("table2")(settings)[-1:]


def three_p(settings: Sequence[Setting]) -> list[Setting]:
    """Federations of Table 2 with the smallest, the middle and the largest majority fraction."""
    of_table = on("table2")(settings)
    return [x for i, x in enumerate(of_table) if i in (0, len(of_table) // 2, len(of_table) - 1)]


def by_clusters(shown: Sequence[Setting]) -> list[str]:
    """Runs with every number of clusters, the usual one first."""
    numbers = [number for setting in shown for number in setting.sweep]
    return [*BOTH, *(of_clusters(label, number) for number in numbers for label in BOTH)]


def with_clusters(shown: Sequence[Setting]) -> list[str]:
    """All runs except local experts, which have no clusters."""
    return [run.label for setting in shown for run in setting.runs() if run.label != LOCALS]


TABLES = {
    "methods": tables.ProtocolGrid(
        "Personalised accuracy by majority fraction",
        f"The paper's Table 2. {TRIALS}",
        BOTH,
        on("table2"),
        **BY_P,
        published=TABLE_2,
        asks="Which predictor is best as clients' data differ more?",
    ),
    "methods_clean": tables.ProtocolGrid(
        "Personalised accuracy, profile clean",
        f"{TRIALS} No ReLU on logits, weight decay as in Table 1, and every decision "
        "on held-out training data.",
        BOTH,
        on("clean"),
        **BY_P,
        asks="Which predictor is best with the cleaner settings?",
    ),
    "other_data": tables.ProtocolGrid(
        "Personalised accuracy on other data",
        f"{TRIALS} The paper shows figures of these data sets and no numbers.",
        BOTH,
        on("other"),
        protocols=PROTOCOLS,
        asks="Which predictor is best on other data?",
    ),
    "paired_differences": tables.PairedDifferences(
        "The mixture and each other way to predict, client by client",
        "Intervals over clients, which one training suffices for. The paper prints no such table.",
        BOTH,
        on("table2", "other"),
        of="eps",
        protocols=PROTOCOLS,
    ),
    "cluster_recovery": tables.ClusterRecovery(
        "Clusters recovered from rotated images",
        "Purity of the clusters that clients form by the model that fits them best. "
        "The paper's text has IFCA without exploration find the two true clusters with two "
        "models, and exploration need more.",
        with_clusters,
        on(*ROLES, where=lambda setting: "rotations" in setting.data.partition),
        choice="choice",
    ),
    "gate_only": tables.ProtocolGrid(
        "What a mixture trains",
        "Mixtures that train the client's copies of all experts along with the gate "
        "(MoE), mixtures that train the gate alone, and the best single expert (IFCA). The "
        "paper is silent on it, and its configurations differ.",
        BOTH,
        on("table2", where=lambda setting: setting.both_mixtures),
        protocols=MIXTURES,
        parameter="partition.p",
        asks="Is it enough to train the gate?",
    ),
    "schedules": tables.ProtocolGrid(
        "Schedules of exploration",
        "The schedules that the official code has besides the constant one.",
        (*BOTH, *map(of_schedule, SCHEDULES)),
        on("table2", where=lambda setting: setting.schedules),
        **BY_P,
        asks="How should clients explore?",
    ),
    "cost": tables.Cost(
        "What training costs",
        "Training examples, arithmetic and traffic of the federated training, in which "
        "a client is sent every cluster's model and sends one back; and what clients train on "
        "their own afterwards, which communicates nothing. Local experts are part of that; "
        "where they have a row, they were trained once for all others.",
        (*BOTH, LOCALS),
        on(*ROLES),
        personal=True,
    ),
}

FIGURES = {
    "methods": figures.ProtocolSweep(
        "Accuracy by majority fraction",
        f"The paper's Figure 3. {TRIALS}",
        BOTH,
        on("table2"),
        **BY_P,
        of="federation",
        symbol="p",
        panels="variant",
        variants=VARIANTS,
        published=TABLE_2,
        asks="Which predictor is best as clients' data differ more?",
    ),
    "effect_of_clusters": figures.ProtocolSweep(
        "Effect of the number of clusters",
        f"The paper's Figure 4. {TRIALS}",
        by_clusters,
        on("table2", where=lambda setting: setting.sweep),
        **BY_CLUSTERS,
        published=TABLE_2,
        asks="Do more clusters help?",
    ),
    "effect_of_clusters_other": figures.ProtocolSweep(
        "Effect of the number of clusters on other data",
        "The paper's text finds nine clusters best on FEMNIST. On rotated images IFCA "
        "finds the true clusters with as many models, and exploration needs more. It prints "
        "no numbers.",
        by_clusters,
        on("other", where=lambda setting: setting.sweep),
        **BY_CLUSTERS,
        asks="Do more clusters help on other data?",
    ),
    "cluster_usage": experts.ClusterUsage(
        "Clients by cluster",
        "The paper's Figure 5: how many clients end up with each cluster's model, "
        "clusters sorted by that number.",
        BOTH,
        three_p,
    ),
    "cluster_usage_other": experts.ClusterUsage(
        "Clients by cluster on other data",
        "How many clients end up with each cluster's model. Rotated images have equal "
        "true clusters, one for each angle.",
        BOTH,
        on("other"),
    ),
    "client_accuracy": figures.ClientAccuracyCdf(
        "Accuracy client by client",
        "The paper's Figure 6: share of clients whose accuracy is at most the value on the axis.",
        BOTH,
        lambda settings: largest_p(settings) + on("other")(settings),
        protocols=PROTOCOLS,
        variants=VARIANTS,
    ),
    "gate_weights": experts.GateWeights(
        "What gates trust",
        "Weight that a client's gate gives each expert, averaged over its test data.",
        BOTH,
        three_p,
    ),
    "accuracy_over_bytes": figures.AccuracyOverBytes(
        "Accuracy over communication",
        "Accuracy with the best cluster's model (IFCA) against what all clients have "
        "sent and received, four bytes per number.",
        BOTH,
        on("table2", "other"),
    ),
    "client_labels": who_has_what("table2", "other"),
}
