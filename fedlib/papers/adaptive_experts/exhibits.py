"""Tables and figures of Adaptive Expert Models. Numbers of them in captions are the paper's."""

from fedlib.papers._frame import on, who_has_what
from fedlib.papers.adaptive_experts.settings import (
    EXPLORATIONS,
    LOCALS,
    ROLES,
    SCHEDULES,
    VARIANTS,
    of_clusters,
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
BY_EXPLORATION = {
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
    "variants": BY_EXPLORATION,
}
TRIALS = (
    "Mean over clients of the accuracy on their own test images, one federated training evaluated "
    "five ways; the spread is over trials."
)


THREE_P = (0.2, 0.6, 1.0)  # of Figure 5


def at_p(*values: float):
    """A function that selects the federations of Table 2 with these majority fractions."""
    return on("table2", where=lambda setting: setting.data.partition["p"] in values)


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
        tuple(label for label in VARIANTS if label != LOCALS),
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
        (*BOTH, *SCHEDULES),
        on("table2", runs=("eps-decay",)),
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
        variants=BY_EXPLORATION,
        published=TABLE_2,
        asks="Which predictor is best as clients' data differ more?",
    ),
    "effect_of_clusters": figures.ProtocolSweep(
        "Effect of the number of clusters",
        f"The paper's Figure 4. {TRIALS}",
        (*BOTH, *of_clusters(*range(1, 13))),
        on("table2", runs=of_clusters(2)),
        **BY_CLUSTERS,
        published=TABLE_2,
        asks="Do more clusters help?",
    ),
    "effect_of_clusters_other": figures.ProtocolSweep(
        "Effect of the number of clusters on other data",
        "The paper's text finds nine clusters best on FEMNIST. On rotated images IFCA "
        "finds the true clusters with as many models, and exploration needs more. It prints "
        "no numbers.",
        (*BOTH, *of_clusters(*range(1, 13))),
        on("other", runs=of_clusters(3)),
        **BY_CLUSTERS,
        asks="Do more clusters help on other data?",
    ),
    "cluster_usage": experts.ClusterUsage(
        "Clients by cluster",
        "The paper's Figure 5: how many clients end up with each cluster's model, "
        "clusters sorted by that number.",
        BOTH,
        at_p(*THREE_P),
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
        on("table2", "other", where=lambda setting: setting.data.partition.get("p", 1) == 1),
        protocols=PROTOCOLS,
        variants=BY_EXPLORATION,
    ),
    "gate_weights": experts.GateWeights(
        "What gates trust",
        "Weight that a client's gate gives each expert, averaged over its test data.",
        BOTH,
        at_p(*THREE_P),
    ),
    "accuracy_over_bytes": figures.AccuracyOverBytes(
        "Accuracy over communication",
        "Accuracy with the best cluster's model (IFCA) against what all clients have "
        "sent and received, four bytes per number.",
        BOTH,
        on("table2", "other"),
    ),
    "client_labels": who_has_what("table2", "other", labels=BOTH),
}
