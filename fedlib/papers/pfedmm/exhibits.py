"""Tables and figures of pFedMM. The paper's own main table is "main"."""

from fedlib.papers._frame import Setting, Settings, in_all, on
from fedlib.papers.pfedmm import settings
from fedlib.spec import experts, figures, tables

ALL = tuple(settings.METHODS)
WITHOUT_A_SERVER = tuple(x for label in settings.SERVERLESS for x in (label, f"{label}-gossip"))
BY_SAMPLING = {x: (x, f"{x}-damped", f"{x}-renormalised") for x in settings.SAMPLED}

EVERYWHERE = on("main", "fedem-readme")  # without federations that only vary another one
WITH_ABLATIONS = on("main", where=lambda setting: settings.ABLATIONS.keys() & {*setting.labels})
WITH_PARTICIPATION = on("main", runs=tuple(settings.PARTICIPATION))

POOLED = {"metric": "accuracy"}
OVER_ROUNDS = "Personalised accuracy of the seen clients after each communication round."
OVER_EXPERTS = {"parameter": "num_experts", "symbol": "M", "methods": list(settings.MIXTURES)}
OVER_ALPHA = {"parameter": "partition.alpha", "of": "federation", "symbol": "α"}


def by_alpha(shown: Settings) -> list[Setting]:
    """Federations that differ in the concentration of their partition."""
    varied = on("heterogeneity")(shown)
    families = {setting.data.family for setting in varied}
    return [s for s in shown if s in varied or ("main" in s.roles and s.data.title in families)]


def methods_over_alpha(shown: Settings) -> list[str]:
    """Registry names of the methods that run with every concentration."""
    return [settings.METHODS[label].method for label in in_all(ALL)(shown)]


TABLES = {
    "main": tables.Accuracy(
        "Personalised accuracy",
        "Seen clients' own predictors on their own test shards: pooled over examples (All), and "
        "the client at the lowest decile (Bottom-10%). Published numbers of methods that the "
        "authors ran are of the best round on test data: compare them with that column. The "
        "scripts give methods different learning rates; rows of other rates are ours.",
        (*ALL, *settings.AT_RATES),
        on("main"),
        published="main",
    ),
    "fresh_adaptation": tables.Views(
        "Fine-tuning of FedAvg+ with a new solver",
        "The solver that fine-tunes lives from one evaluation to the next, as in the official "
        "code, or each fine-tuning has a new one at the rate that training has reached. Before "
        "fine-tuning the model is FedAvg's, at the learning rate of FedAvg+. Not in the paper.",
        ("fedavg-plus",),
        EVERYWHERE,
        columns=[
            {"title": "One solver", **POOLED},
            {"title": "New solvers", "protocol": "fresh", **POOLED},
            {"title": "Before fine-tuning", "protocol": "untuned", **POOLED},
        ],
    ),
    "fedem_settings": tables.Accuracy(
        "Settings of FedEM",
        "The paper's data sets with the rounds, rates and evaluations of FedEM's scripts. "
        "Published: the averages in FedEM's README, which does not say of which round.",
        ALL,
        on("fedem-settings"),
        published="fedem-readme",
    ),
    "fedem_data": tables.Accuracy(
        "Data sets of FedEM",
        "Data sets of FedEM that pFedMM does not report on. Published: the averages in FedEM's "
        "README, which does not say of which round.",
        ALL,
        on("fedem-readme"),
        published="fedem-readme",
    ),
    "unseen": tables.Views(
        "Clients that took no part in training",
        f"Runs with {settings.UNSEEN_FRACTION:.0%} of the clients set apart. Mixtures fit the "
        "weights of these in one E-step on their training examples, or carry them from evaluation "
        "to evaluation; FedAvg+ fine-tunes. The paper claims up to 5.8 points over the baselines; "
        "its numbers are not public.",
        ALL,
        on("unseen"),
        columns=[
            {"title": "Seen", **POOLED},
            {"title": "Unseen", "group": "unseen", **POOLED},
            {"title": "Unseen, carried", "group": "unseen", "protocol": "carry", **POOLED},
            {"title": "Unseen, trained", "group": "unseen", "protocol": "trained", **POOLED},
        ],
    ),
    "decentralised": tables.Accuracy(
        "Without a server",
        "Clients average with their neighbours on a connected Erdos-Renyi graph (edge probability "
        "0.5, fastest-mixing weights). The paper's code has it; the paper prints no numbers.",
        WITHOUT_A_SERVER,
        WITH_PARTICIPATION,
    ),
    "client_sampling": tables.Accuracy(
        "Client sampling",
        f"{settings.SAMPLING_RATE:.0%} of the clients take part in a round. Damped: absent clients "
        "count with the model they hold, as in the official code. Renormalised: they do not count. "
        "The paper prints no numbers.",
        tuple(x for label in settings.SAMPLED for x in BY_SAMPLING[label]),
        WITH_PARTICIPATION,
    ),
    "refreshed_weights": tables.Views(
        "Mixture weights of absent clients",
        "The weights of an absent client fit the experts of an earlier round: as they are, and "
        "after one E-step with the last experts.",
        tuple(x for label in settings.MIXTURES for x in BY_SAMPLING[label]),
        WITH_PARTICIPATION,
        columns=[
            {"title": "As they are", **POOLED},
            {"title": "Refreshed", "protocol": "one_step", **POOLED},
        ],
    ),
    "ablations": tables.Accuracy(
        "What pFedMM is made of",
        "One part changed: a ReLU on the heads' outputs, in the official code on EMNIST alone; "
        "the body's rate, officially M times the heads'; or the prior of the E-step, officially "
        "the last weights. Not in the paper.",
        ("pfedmm", *settings.ABLATIONS),
        WITH_ABLATIONS,
    ),
    "cost": tables.Cost(
        "What a method costs",
        "Training examples, arithmetic and traffic of every method.",
        ALL,
        EVERYWHERE,
    ),
}

FIGURES = {
    "accuracy_over_rounds": figures.AccuracyOverRounds(
        *("Accuracy over rounds", OVER_ROUNDS, (*ALL, *settings.AT_RATES), on("main")),
        peaks="curve-peak",
        waypoints="curve-waypoints",
        published="curve-end",
    ),
    "fedem_data_over_rounds": figures.AccuracyOverRounds(
        *("Accuracy over rounds, data sets of FedEM", OVER_ROUNDS, ALL, on("fedem-readme")),
    ),
    "client_accuracy": figures.ClientAccuracyCdf(
        "Accuracy client by client",
        "Share of clients whose accuracy is at most the value on the axis, last round.",
        ALL,
        EVERYWHERE,
    ),
    "mixture_weights": experts.MixtureWeights(
        "Mixture weights",
        "How much of each expert a client's mixture uses, last round.",
        settings.MIXTURES,
        EVERYWHERE,
    ),
    "accuracy_over_bytes": figures.AccuracyOverBytes(
        "Accuracy over communication",
        "Traffic of all clients together, both ways, four bytes per number.",
        ALL,
        EVERYWHERE,
    ),
    "effect_of_experts": figures.Sweep(
        "Effect of the number of experts",
        "Personalised accuracy of the seen clients with M experts.",
        tuple(sorted((*settings.MIXTURES, *settings.of_experts(*settings.EXPERTS)))),
        on("main", runs=settings.of_experts(2)),
        **OVER_EXPERTS,
    ),
    "heterogeneity": figures.Sweep(
        "Effect of heterogeneity",
        "Personalised accuracy of the seen clients against the concentration α of the Dirichlet "
        "partition: the smaller, the more clients differ.",
        in_all(ALL),
        by_alpha,
        **OVER_ALPHA,
        methods=methods_over_alpha,
    ),
}
