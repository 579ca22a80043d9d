"""Tables and figures of pFedMoE; most are for heterogeneous or for homogeneous models."""

from fedlib.papers._frame import each, in_all, on
from fedlib.papers.pfedmoe import settings
from fedlib.spec import experts, figures, tables
from fedlib.spec.exhibits import Exhibit

MEAN = {"metric": "accuracy_client_mean"}
SETTINGS = {  # name: the clients' models, suffix of labels, labels
    "heterogeneous": ("five architectures in turn, CNN-1 to CNN-5", "", settings.MAIN),
    "homogeneous": ("one architecture, CNN-1", settings.SAME, settings.HOMOGENEOUS),
}
CURVES = ("pfedmoe", *settings.BASELINES)
SEVEN = "the paper's seven baselines"  # FedGH and FedTGP are ours
SOURCES = [
    {"name": "sibling", "mark": "s", "title": "pFedES (AAAI 2025), a sibling paper with the same "
     "first author, data, models and baselines; ± its standard deviation over three trials"},
    {"name": "inferred", "mark": "i", "title": "not printed: two printed gains of pFedMoE, added "
     "to two baselines of the sibling paper, both give this number"},
]  # fmt: skip
COMMON = [
    {"title": "Own test sets", **MEAN},
    {"title": "Shared test set", "split": "shared", **MEAN},
]
AGGREGATED = [
    {"title": "Extractor as trained", **MEAN},
    {"title": "Extractor as aggregated", "protocol": "aggregated", **MEAN},
]
REPEATED = "At this scale, on CIFAR-10 only these runs and two of other gates have three seeds."
SWEEPS = (  # exhibit, what varies in words, field of the partition, symbol
    ("classes", "classes per client", "classes_per_client", "s"),
    ("gamma", "how unlike clients are", "alpha", "γ"),
)


def _tables(name: str) -> dict[str, Exhibit]:
    """Tables of one setting: accuracy, gains, costs."""
    what, suffix, labels = SETTINGS[name]
    compared = tuple(f"{label}{suffix}" for label in CURVES)
    mutual = [f"{label}{suffix}" for label in settings.MUTUAL]
    return {
        f"accuracy_{name}": tables.BesidePublished(
            f"Mean accuracy, {name} models",
            f"Clients have {what}. The paper's own table could not be read.",
            labels,
            on("main"),
            sources=SOURCES,
            names=each(lambda setting: setting.published and f"{name}-{setting.published}"),
            others={f"pfedes{suffix}": "pFedES"},
            published=f"sibling-{name}",
        ),
        f"gains_{name}": tables.Gains(
            f"Gain of pFedMoE over the best of {SEVEN}, {name} models",
            "Of all seven, and of mutual learning, its own category. Published: the text's ranges.",
            compared,
            on("main", runs=compared, where=lambda setting: setting.data.dataset != "mnist"),
            of=f"pfedmoe{suffix}",
            groups=[
                {"title": "all baselines", "labels": [*compared[1:]], "gain": "gain"},
                {"title": "mutual learning", "labels": mutual, "gain": "gain_mutual"},
            ],
            published=f"range-{name}",
        ),
        f"repeated_{name}": tables.BesidePublished(
            f"pFedMoE and the baselines of the criteria, {name} models",
            f"Clients have {what}. {REPEATED}",
            tuple(f"{label}{suffix}" for label in settings.COMPARED),
            on("compared"),
            sources=[],
            names={},
        ),
        f"cost_{name}": tables.Cost(
            f"What training costs, {name} models",
            "Training examples, arithmetic and traffic of all clients together.",
            labels,
            on("main"),
        ),
    }


def _figures(name: str) -> dict[str, Exhibit]:
    """Figures of one setting: curves, and differences by client."""
    what, suffix, labels = SETTINGS[name]
    curves = tuple(f"{label}{suffix}" for label in CURVES)
    return {
        f"accuracy_over_rounds_{name}": figures.AccuracyOverRounds(
            f"Mean accuracy over rounds, {name} models",
            f"pFedMoE and {SEVEN}; clients have {what}.",
            curves,
            on("main"),
            **MEAN,
        ),
        f"repeated_over_rounds_{name}": figures.AccuracyOverRounds(
            f"pFedMoE and the baselines of the criteria, {name} models",
            f"Clients have {what}. {REPEATED}",
            tuple(f"{label}{suffix}" for label in settings.COMPARED),
            on("compared"),
            **MEAN,
        ),
        f"cost_to_target_{name}": figures.CostToTarget(
            f"Communication and computation to a target, {name} models",
            f"Clients have {what}. Without a dot: the target is not reached, or nothing is sent.",
            labels,
            on("main", where=lambda setting: setting.target),
            targets=each(lambda setting: setting.target),
        ),
        f"client_differences_{name}": figures.ClientDifferences(
            f"pFedMoE and the best of {SEVEN}, client by client, {name} models",
            "Accuracy on a client's own test examples, minus that of the one with the best mean.",
            curves,
            on("main", runs=curves),
            of=f"pfedmoe{suffix}",
        ),
    }


TABLES = {
    **_tables("heterogeneous"),
    **_tables("homogeneous"),
    "gate": tables.Views(
        "The gate: normalisation, and what it is for",
        "1-D switch norm on the input, then one change at a time. The sources leave it open.",
        settings.GATES,
        on("gate"),
        columns=AGGREGATED,
    ),
    "shares": tables.Views(
        "Even and uneven shares of a class",
        "Owners share a class evenly, or by a Dirichlet draw of concentration "
        f"{settings.UNEVEN:g}; ours.",
        in_all(settings.FEW),
        on("shares"),
        columns=COMMON[:1],
    ),
    "shared_test_set": tables.Views(
        "A test set that all clients share",
        "Test examples of all clients, of most of whose classes a client has no example, beside "
        f"its own. pFedMoE and {SEVEN}.",
        CURVES,
        on("gate"),
        columns=COMMON,
    ),
}

FIGURES = {
    **_figures("heterogeneous"),
    **_figures("homogeneous"),
    **{
        f"accuracy_over_{name}": figures.Sweep(
            f"Mean accuracy over {what}",
            "Ten clients with heterogeneous models.",
            in_all(settings.FEW),
            on(name),
            parameter=f"partition.{parameter}",
            symbol=symbol,
            methods=lambda shown: [
                settings.VARIANTS[x].method for x in in_all(settings.FEW)(shown)
            ],
            of="federation",
            **MEAN,
        )
        for name, what, parameter, symbol in SWEEPS
    },
    "expert_weights": experts.ExpertWeights(
        "Gate weight of the local expert",
        "By test example, and the mean by client and class.",
        ("pfedmoe",),
        on("representations"),
    ),
    "representations": figures.Representations(
        "t-SNE of expert representations",
        "Test examples of some clients, by the two experts and their mixture.",
        ("pfedmoe",),
        on("representations"),
        kinds=["Global expert", "Local expert", "Mixture"],
    ),
}
