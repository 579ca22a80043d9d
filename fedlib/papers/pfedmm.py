"""pFedMM: main table, unseen clients, and the effect of the number of experts.

Paper: "Mixture of Experts for Personalized Federated Learning under Mixture Data Distributions in
Edge Computing Networks".
Source of every value: the scripts of the official repository Archipes/pFedMM ("scripts" below),
which its README does not always match; of FedEM's, omarfoq/FedEM, where the former is silent.

Scales:
  demo     two small federations that need no download, with settings of ours
  reduced  EMNIST and CIFAR-10 as the paper cuts them, with fewer rounds and seeds
  full     the paper's settings, with three seeds instead of one
"""

from fedlib.errors import ConfigError
from fedlib.papers import _pfedmm_settings as settings
from fedlib.papers._pfedmm_settings import METHODS, MIXTURES, SAMPLING_RATE, SERVERLESS
from fedlib.spec import SCALES, Figure, Paper, Run, Table

TITLE = "pFedMM"
CITATION = (
    "Mixture of Experts for Personalized Federated Learning under Mixture Data Distributions in "
    "Edge Computing Networks (official code: Archipes/pFedMM)"
)

TEST_SELECTION = (
    "The published numbers of the methods that the authors ran are the best round on the test "
    "data: compare them with the column of the best round."
)
PARTICIPATION = {
    "decentralised": (
        "Without a server",
        "Accuracy when clients average with their neighbours on a connected Erdos-Renyi graph "
        "(edge probability 0.5, fastest-mixing weights) instead of through a server. The paper's "
        "code has this setting; it prints no numbers.",
    ),
    "client_sampling": (
        "Client sampling",
        f"Accuracy when {SAMPLING_RATE:.0%} of the clients take part in a round. Damped: absent "
        "clients count with the model they hold, as in the official code. Renormalised: they do "
        "not count. The paper prints no numbers.",
    ),
}


def declare(scale: str) -> Paper:
    """The paper at one scale.

    Raises:
      ConfigError: for an unknown scale.
    """
    if scale not in SCALES:
        raise ConfigError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    note, seeds, declared = getattr(settings, scale)()
    runs = tuple(run for setting in declared for run in setting.runs())
    federations = tuple(setting.data.name for setting in declared)
    return Paper(
        name="pfedmm",
        title=TITLE,
        citation=CITATION,
        scale=scale,
        scale_note=note,
        seeds=seeds,
        data=tuple(setting.data for setting in declared),
        runs=runs,
        tables=_tables(federations, runs),
        figures=_figures(federations, runs),
    )


def _tables(federations: tuple[str, ...], runs: tuple[Run, ...]) -> dict[str, Table]:
    tables = {
        "main": Table(
            kind="accuracy",
            title="Personalised accuracy",
            caption="Accuracy of the seen clients' own predictors on their own test shards: pooled "
            "over examples (All), and of the client at the lowest decile (Bottom-10%). "
            + TEST_SELECTION,
            labels=tuple(METHODS),
            federations=federations,
            published="main",
        ),
        "unseen": Table(
            kind="unseen",
            title="Clients that took no part in training",
            caption="Accuracy of unseen clients after adapting as their method allows: mixtures "
            "fit their weights in one E-step on the client's training examples (default) or carry "
            "them from evaluation to evaluation (carry); FedAvg+ fine-tunes. The paper claims up "
            "to 5.8 points over the baselines and prints no table.",
            labels=tuple(METHODS),
            federations=federations,
        ),
    }
    for name, (title, caption) in PARTICIPATION.items():
        labels = _compared(name)
        where = dict.fromkeys(run.federation for run in runs if run.label == labels[-1])
        if where:
            tables[name] = Table(
                kind="accuracy",
                title=title,
                caption=caption,
                labels=labels,
                federations=tuple(where),
            )
    if labels := _swept(runs):
        tables["effect_of_experts"] = Table(
            kind="sweep",
            title="Effect of the number of experts",
            caption="Personalised accuracy of the seen clients for M experts. The paper's scripts "
            "run this experiment; its numbers are not public.",
            labels=labels,
            federations=federations,
            params={"parameter": "num_experts", "symbol": "M", "methods": list(MIXTURES)},
        )
    return tables


def _figures(federations: tuple[str, ...], runs: tuple[Run, ...]) -> dict[str, Figure]:
    figures = {
        "accuracy_over_rounds": Figure(
            kind="accuracy_over_rounds",
            title="Accuracy over rounds",
            caption="Personalised accuracy of the seen clients after each communication round. "
            "Dashes at the right of a panel mark where the paper's curves end.",
            labels=tuple(METHODS),
            federations=federations,
            published="curve-end",
        ),
        "client_accuracy": Figure(
            kind="client_accuracy_cdf",
            title="Accuracy client by client",
            caption="Share of clients whose accuracy is at most the value on the axis, last round.",
            labels=tuple(METHODS),
            federations=federations,
        ),
        "mixture_weights": Figure(
            kind="mixture_weights",
            title="Mixture weights",
            caption="How much of each expert a client's mixture uses, last round.",
            labels=MIXTURES,
            federations=federations,
        ),
        "accuracy_over_bytes": Figure(
            kind="accuracy_over_bytes",
            title="Accuracy over communication",
            caption="Personalised accuracy against what all clients together have sent and "
            "received, four bytes per number.",
            labels=tuple(METHODS),
            federations=federations,
        ),
    }
    if labels := _swept(runs):
        figures["effect_of_experts"] = Figure(
            kind="sweep",
            title="Effect of the number of experts",
            caption="Personalised accuracy of the seen clients against the number of experts M.",
            labels=labels,
            federations=federations,
            params={"parameter": "num_experts", "symbol": "M", "methods": list(MIXTURES)},
        )
    return figures


def _swept(runs: tuple[Run, ...]) -> tuple[str, ...]:
    """Labels of the runs that compare numbers of experts; none where only one was run."""
    labels = [
        run.label
        for run in runs
        if run.method in MIXTURES and run.participation == settings.EVERYBODY
    ]
    return tuple(dict.fromkeys(labels)) if len(set(labels)) > len(MIXTURES) else ()


def _compared(table: str) -> tuple[str, ...]:
    """Labels of the runs that differ in who takes part, each after its run with everybody."""
    ways = {"decentralised": ("gossip",), "client_sampling": ("damped", "renormalised")}[table]
    return tuple(name for label in SERVERLESS for name in (label, *(f"{label}-{w}" for w in ways)))
