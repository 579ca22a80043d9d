"""Tables and figures of Fed-MoE. Numbers of them in captions are the paper's."""

from collections.abc import Callable

from fedlib.papers._frame import in_all, on
from fedlib.papers.fedmoe import columns, settings
from fedlib.spec import experts, figures, server, tables

CONTRADICTIONS = (
    "Printed inconsistently: of Avg-MoE on FEMNIST at M = 50 Tables 2, 3 and 7 have 83.30, 82.78 "
    "and 82.60, of FedJETs Tables 2 and 7 have 76.96 and 75.88."
)
FIGURE_4 = (
    "The paper's Figure 4: 60 % of the reserved data are of one class, or all classes are alike. "
    "The paper shows Sent140 and Yelp at M = 50."
)
ROLLED = 100  # number of clients of FedRolex's only published number (section 0)
BETA_PAIR = ("fedmoe", "fedmoe-beta-1e-1")
BY_CLASS = {"values": "mean gate", "rows": "Class", "rounds": columns.some_rounds}

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
WITH_MAINS = {  # Table 8
    **{"fedmoe-main-0": "0", "fedmoe": "1"},
    **{f"fedmoe-main-{num}": str(num) for num in settings.MAINS[1:]},
}


def _ablation(
    number: int, shown: Callable, title: str, head: str, titles: dict[str, str]
) -> server.GlobalAccuracy:
    """A table of the paper about one part of Fed-MoE; `titles` of the rows are by label."""
    table = f"table{number}"
    return server.GlobalAccuracy(
        title,
        f"The paper's Table {number}, at M = 50.",
        tuple(titles),
        shown,
        columns=columns.by_clients(settings.ABLATED),
        head=head,
        rows=columns.rows(titles, settings.PRINTED_AS.get(table, {})),
        published=table,
    )


TABLES = {
    "accuracy": server.GlobalAccuracy(
        "Accuracy by number of clients",
        f"The paper's Table 2. {CONTRADICTIONS} CentMoE has no clients, and one number for all M "
        "in the paper; here it has the rounds and test examples of the others, and one number for "
        "all M where its data are the same.",
        (*settings.PRINTED, *settings.OURS),
        on("main"),
        rows=columns.of_table_2,
        columns=columns.by_clients(published=lambda setting: f"table2-m{setting.num_clients}"),
        average="table2-average",
        published="table2",
    ),
    "size": server.ServerSize(
        "Parameters and traffic",
        "The paper's Table 1. By the networks that it names, its 6.5 M of FedAvg on FEMNIST are "
        "6.6 M, and its 1.59 G of Fed-MoE on Yelp are 1.67 G.",
        ("fedavg", "avg-moe", "fedmoe"),
        on("size"),
        published="table1",
    ),
    "mixtures": server.GlobalAccuracy(
        "Mixtures of experts",
        f"The paper's Table 7, at M = 50. {CONTRADICTIONS}",
        tuple(label for label in settings.PRINTED if label not in ("fedavg", "fedprox")),
        on("mixtures"),
        columns=columns.by_clients(settings.ABLATED),
        published="table7",
    ),
    "rolling": server.GlobalAccuracy(
        "A rolling part of a wider network",
        "FedRolex has one number in section 5.4, for 100 clients; the data set is inferred. Its "
        "server's network is twice as wide as the clients'.",
        ("fedavg", "fedrolex", "fedmoe"),
        on(runs=("fedrolex",)),
        columns=columns.by_clients(ROLLED),
        published="text",
    ),
    "cost": tables.Cost(
        "What training costs",
        "All clients together, without the server's computation.",
        (*settings.PRINTED, *settings.OURS),
        on("main"),
    ),
    "num_experts": server.GlobalAccuracy(
        "Number of experts",
        f"The paper's Table 3, at M = 50. {CONTRADICTIONS}",
        lambda shown: [row["label"] for row in columns.of_table_3(shown)],
        on("experts"),
        columns=columns.by_clients(settings.ABLATED),
        rows=columns.of_table_3,
        published="table3",
    ),
    "parts": _ablation(
        4, on(runs=settings.PARTS), "Entropy and synchronisation", "With", WITH_PARTS
    ),
    "entropy_weight": _ablation(5, on("betas"), "Weight β of the entropy", "β", WITH_BETA),
    "top_l": server.GlobalAccuracy(
        "Experts at inference",
        "The paper's Table 6, at M = 50: one training, whose server keeps a mixture for each L.",
        ("fedmoe",),
        on("kept"),
        columns=columns.by_clients(settings.ABLATED),
        head="L",
        rows=columns.of_table_6,
        published="table6",
    ),
    "main_experts": _ablation(
        8, on(runs=("fedmoe-main-0",)), "Number of main experts", "Main experts", WITH_MAINS
    ),
    "reserved": server.GlobalAccuracy(
        "Size of the reserved set",
        "Section 5.3 of the paper, at M = 50: the server's examples, for its gate and relevance.",
        ("fedmoe",),
        on("reserved"),
        columns=columns.by_reserved,
        published="reserved",
    ),
    "skewed": server.GlobalAccuracy(
        *("A skewed reserved set", FIGURE_4, in_all(settings.PRINTED), on("even", "skewed")),
        columns=columns.of_figure_4,
        published="figure4",
    ),
    "weights": server.GlobalAccuracy(
        "Readings of the weights Wʳ and Wᶜ",
        "Fed-MoE has sums over the reserved set in Wʳ, and the code's Wᶜ. The others change one "
        "thing: Wᶜ by Equations 11 and 12, of sums (the largest takes all) or of means (nearly "
        "uniform); shares without a second softmax; Wʳ of means; equal Wʳ. None is in the paper.",
        settings.WEIGHTS,
        on(runs=settings.WEIGHTS[:2]),
        columns=columns.by_clients(),
    ),
    "steps": server.GlobalAccuracy(
        "How far experts, clients and α move",
        "λ of Equations 6 and 13, for experts and clients: with 1 experts are replaced and clients "
        "keep their own models. Or a fixed α. None is in the paper.",
        settings.STEPS,
        on(runs=("fedmoe-lambda-0.5",)),
        columns=columns.by_clients(),
    ),
    "own_models": tables.Views(
        "Clients' own models",
        "On the server's test examples, beside the server's model. In the ensemble clients train "
        "alone, so its column of clients is usually called Local. None is in the paper.",
        ("ensemble", "fedmoe", "fedmoe-fresh"),
        on("alone"),
        columns=[
            {"title": "Clients", "protocol": "own", "split": "shared"},
            {"title": "Server", "group": "server", "metric": "accuracy"},
        ],
    ),
    "released_code": server.GlobalAccuracy(
        "What the released code does",
        "In training the code keeps one expert, by a constant value: of its losses, load alone "
        "trains the gate. Straight through adds the missing gradient. The numbers of its README "
        "are those of Table 2.",
        settings.GATES,
        on(runs=("fedmoe-code",)),
        columns=columns.by_clients(),
    ),
    "warm_start": server.GlobalAccuracy(
        "A warm start",
        "All experts and clients start from an expert that was trained for an epoch on the "
        "server's data, or as in the paper. The code of Yelp reads an expert that was not "
        "released.",
        settings.WARM,
        on(runs=settings.WARM),
        columns=columns.by_clients(),
    ),
    "alpha": tables.LearnedAlpha(
        "The share α of the routed experts",
        "Section 5.2 of the paper. Its 0.38 on CIFAR-10 cannot come of the released code, which "
        "starts at 0.9 with a rate of 5e-7.",
        ("fedmoe",),
        on("written"),
        published="text",
    ),
}

FIGURES = {
    "accuracy_over_rounds": figures.AccuracyOverRounds(
        "Accuracy over rounds",
        "On the server's test examples. Methods that choose a state show the best one so far.",
        (*settings.PRINTED, *settings.OURS),
        on("main"),
        group="server",
    ),
    "skewed_reserved_set": figures.GainBars(
        "Effect of a skewed reserved set",
        FIGURE_4,
        in_all(settings.PRINTED),
        columns.settings_of_pairs,
        pairs=columns.pairs,
        bars=[
            {"metric": metric, "title": title, "printed": printed}
            for metric, (title, printed) in columns.SKEW_METRICS.items()
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
        **BY_CLASS,
    ),
    "gate_of_the_code": experts.TablesOverTime(
        "The gate by expert and class, of the paper and of the released code",
        "The code's gate only balances the load. Means over the examples of a class that measure "
        "relevance.",
        settings.GATES,
        on(runs=("fedmoe-code",)),
        **BY_CLASS,
    ),
}
