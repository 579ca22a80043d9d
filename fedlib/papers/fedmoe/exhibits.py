"""Tables and figures of Fed-MoE. Numbers of them in captions are the paper's."""

from fedlib.papers._frame import in_all, on, who_has_what
from fedlib.papers.fedmoe.columns import (
    SKEW_METRICS,
    by_reserved,
    columns,
    of_figure_4,
    of_table_3,
    pairs,
    rows,
    skewed_and_even,
    some_rounds,
)
from fedlib.papers.fedmoe.settings import (
    ABLATED,
    GATES,
    KEPT,
    MAINS,
    OURS,
    PRINTED,
    PRINTED_AS,
    STEPS,
    WARM,
    WEIGHTS,
)
from fedlib.spec import experts, figures, server, tables

CONTRADICTIONS = (
    "Printed inconsistently: of Avg-MoE on FEMNIST at M = 50 Tables 2, 3 and 7 have 83.30, 82.78 "
    "and 82.60, of FedJETs Tables 2 and 7 have 76.96 and 75.88."
)
ROLLED = 100  # number of clients of FedRolex's only published number (section 0)
BETA_PAIR = ("fedmoe", "fedmoe-beta-1e-1")
BY_CLASS = {"values": "mean gate", "rows": "Class"}

WITH_PARTS = {  # Table 4: labels, and the titles of their rows
    "fedmoe-plain": "neither",
    "fedmoe-entropy": "+ GEnt, entropy of the gate",
    "fedmoe-sync": "+ Sync, synchronisation",
    "fedmoe": "both",
}
WITH_BETA = {  # Table 5
    "fedmoe-sync": "0",
    "fedmoe-beta-1e-4": "1e-4",
    "fedmoe": "1e-3",
    "fedmoe-beta-1e-2": "1e-2",
    "fedmoe-beta-1e-1": "1e-1",
}
WITH_KEPT = {"fedmoe": "1", **{f"fedmoe-top-{num}": str(num) for num in KEPT}}  # Table 6
WITH_MAINS = {  # Table 8
    **{"fedmoe-main-0": "0", "fedmoe": "1"},
    **{f"fedmoe-main-{num}": str(num) for num in MAINS[1:]},
}


def _ablation(
    number: int, role: str, title: str, head: str, titles: dict[str, str], asks: str
) -> server.GlobalAccuracy:
    """A table of the paper about one part of Fed-MoE; `titles` of the rows are by label."""
    table = f"table{number}"
    return server.GlobalAccuracy(
        title,
        f"The paper's Table {number}, at M = 50.",
        tuple(titles),
        on(role),
        columns=columns(ABLATED),
        head=head,
        rows=rows(titles, PRINTED_AS.get(table, {})),
        published=table,
        asks=asks,
    )


TABLES = {
    "accuracy": server.GlobalAccuracy(
        "Accuracy by number of clients",
        f"The paper's Table 2. {CONTRADICTIONS} Of CentMoE, which no client has a part in, the "
        "paper has one number for all M. Here it has the rounds of the other methods on each "
        "federation and draws its batches anew; on FEMNIST what it is tested on differs, too, "
        "as M decides which writers are the clients'.",
        (*PRINTED, *OURS),
        on("main"),
        columns=columns(published=lambda setting: f"table2-m{setting.num_clients}"),
        average="table2-average",
        published="table2",
    ),
    "size": server.ServerSize(
        "Parameters and traffic",
        "The paper's Table 1. Its 6.5 M of FedAvg on FEMNIST are 6.6 M, and its 1.59 G "
        "of Fed-MoE on Yelp are 1.67 G, by the networks that it names.",
        ("fedavg", "avg-moe", "fedmoe"),
        on("size"),
        published="table1",
    ),
    "mixtures": server.GlobalAccuracy(
        "Mixtures of experts",
        f"The paper's Table 7, at M = 50. {CONTRADICTIONS}",
        tuple(label for label in PRINTED if label not in ("fedavg", "fedprox")),
        on("mixtures"),
        columns=columns(ABLATED),
        published="table7",
        asks="Which mixture of experts on the server is best?",
    ),
    "rolling": server.GlobalAccuracy(
        "A rolling part of a wider network",
        "FedRolex, of which section 5.4 of the paper prints one number, for 100 clients; the "
        "data set is inferred. Its server's network is twice as wide as the clients'.",
        ("fedavg", "fedrolex", "fedmoe"),
        on("rolling"),
        columns=columns(ROLLED),
        published="text",
        asks="Is it enough to train a part of a wider network?",
    ),
    "cost": tables.Cost(
        "What training costs",
        "Training examples, arithmetic and traffic of all clients together; what the "
        "server computes is not in it.",
        (*PRINTED, *OURS),
        on("main"),
    ),
    "num_experts": server.GlobalAccuracy(
        "Number of experts",
        f"The paper's Table 3, at M = 50. {CONTRADICTIONS}",
        lambda shown: [row["label"] for row in of_table_3(shown)],
        on("experts"),
        columns=columns(ABLATED),
        rows=of_table_3,
        published="table3",
        asks="How many experts does the server need?",
    ),
    "parts": _ablation(
        *(4, "parts", "Entropy and synchronisation", "With", WITH_PARTS),
        "Which part of Fed-MoE matters?",
    ),
    "entropy_weight": _ablation(
        *(5, "betas", "Weight β of the entropy", "β", WITH_BETA),
        "How much should the gate be pushed to decide?",
    ),
    "top_l": _ablation(
        *(6, "kept", "Experts at inference", "L", WITH_KEPT),
        "How many experts are needed to predict?",
    ),
    "main_experts": _ablation(
        *(8, "mains", "Number of main experts", "Main experts", WITH_MAINS),
        "How many main experts does a client need?",
    ),
    "reserved": server.GlobalAccuracy(
        "Size of the reserved set",
        "Section 5.3 of the paper, at M = 50: examples that the server has to train its gate "
        "on and to measure relevance with.",
        ("fedmoe",),
        on("reserved"),
        columns=by_reserved,
        published="reserved",
        asks="How many examples does the server need?",
    ),
    "skewed": server.GlobalAccuracy(
        "A skewed reserved set",
        "The paper's Figure 4: 60 % of the reserved data are of one class, and what is gained "
        "where all classes are alike. The paper shows Sent140 and Yelp at M = 50.",
        in_all(PRINTED),
        on("even", "skewed"),
        columns=of_figure_4,
        published="figure4",
        asks="What if the server's examples are skewed?",
    ),
    "weights": server.GlobalAccuracy(
        "Readings of the weights Wʳ and Wᶜ",
        "Fed-MoE takes sums over the reserved set for Wʳ, and the code's form of Wᶜ. Then "
        "one change at a time: Equations 11 and 12 of sums, with which the largest takes all, "
        "or of means, which are nearly uniform; shares without a second softmax; Wʳ of means; "
        "equal Wʳ. The paper prints no such numbers.",
        WEIGHTS,
        on("weights"),
        columns=columns(),
        asks="Does it matter how the paper's weights are read?",
    ),
    "steps": server.GlobalAccuracy(
        "How far experts, clients and α move",
        "λ for experts and clients alike, as in Equations 6 and 13: with 1 experts are "
        "replaced and clients keep what they trained. Or an α that is not learned. The paper "
        "prints no such numbers.",
        STEPS,
        on("steps"),
        columns=columns(),
        asks="What moves how far in a round?",
    ),
    "own_models": tables.Views(
        "Clients' own models",
        "Mean accuracy of the clients' own models on the server's test examples, "
        "beside that of the server's. In the ensemble clients train alone, so its column of "
        "clients is what the literature calls Local. The paper prints no such numbers.",
        ("ensemble", "fedmoe", "fedmoe-fresh"),
        on("alone"),
        columns=[
            {"title": "Clients", "protocol": "own", "split": "shared"},
            {"title": "Server", "group": "server", "metric": "accuracy"},
        ],
        asks="How good are the models that clients keep?",
    ),
    "released_code": server.GlobalAccuracy(
        "What the released code does",
        "The code keeps one expert in training, by a value that is constant: entropy and "
        "importance have no gradient for the gate, and its load alone trains it. Straight "
        "through has the gradient that is missing. Numbers that its README prints are those of "
        "Table 2.",
        GATES,
        on("gates"),
        columns=columns(),
        asks="Does the released code do what the paper says?",
    ),
    "warm_start": server.GlobalAccuracy(
        "A warm start",
        "One expert is trained on the server's data for an epoch, and all experts and clients "
        "start from it; or from their common random or pretrained weights, as in the paper. "
        "The code of Yelp reads such an expert from a file that was not released.",
        WARM,
        on("warm"),
        columns=columns(),
        asks="Does a warm start help?",
    ),
    "alpha": tables.LearnedAlpha(
        "The share α of the routed experts",
        "As learned, beside section 5.2 of the paper. Its 0.38 on CIFAR-10 cannot come "
        "of the released code, which starts at 0.9 with a rate of 5e-7.",
        ("fedmoe",),
        on("written"),
        published="text",
    ),
}

FIGURES = {
    "accuracy_over_rounds": figures.AccuracyOverRounds(
        "Accuracy over rounds",
        "On the server's test examples. Methods that choose a state by validation "
        "examples show the best one so far, and with a star when it was found.",
        (*PRINTED, *OURS),
        on("main"),
        group="server",
        chosen=True,
    ),
    "skewed_reserved_set": figures.GainBars(
        "Effect of a skewed reserved set",
        "The paper's Figure 4: 60 % of the reserved data are of one class, or all "
        "classes are alike. The paper shows Sent140 and Yelp at M = 50.",
        in_all(PRINTED),
        skewed_and_even,
        pairs=pairs,
        bars=[
            {"metric": metric, "title": title, "printed": theirs}
            for metric, (title, theirs) in SKEW_METRICS.items()
        ],
        names=["60 % of one class", "even classes"],
        gains="figure4-gain",
        published="figure4-skewed",
    ),
    "gate_by_class": experts.TablesOverTime(
        "The gate by expert and class, with β = 1e-3 and 1e-1",
        "The paper's Figure 3: means over the reserved examples of a class.",
        BETA_PAIR,
        on("written", runs=BETA_PAIR),
        rounds=some_rounds,
        **BY_CLASS,
        asks="Does the gate use all experts, and does it tell classes apart?",
    ),
    "gate_of_the_code": experts.TablesOverTime(
        "The gate by expert and class, of the paper and of the released code",
        "The code's losses leave its gate to balance the load; straight through, they "
        "reach it. Means over the examples of a class with which relevance is measured.",
        GATES,
        on("gates"),
        rounds=some_rounds,
        **BY_CLASS,
        asks="Does the gate of the released code differ from the paper's?",
    ),
    "client_labels": who_has_what("main", "skewed"),
}
