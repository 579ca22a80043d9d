"""Adaptive Expert Models: clusters with exploration, local experts and gates.

Paper: Isaksson, Listo Zec, Coster, Gillblad, Girdzijauskas, "Adaptive Expert Models for
Personalization in Federated Learning", FL-IJCAI 2022 (arXiv:2206.07832).
Every value has its source in `_adaptive_experts_settings`.

A run is one federated training; its evaluation has a protocol per column of the paper's Table 2.

Scales:
  demo     digits by majority fraction, and rotated; settings of ours
  reduced  CIFAR-10 by majority fraction with fewer clients, images, rounds and trials
  full     CIFAR-10 by majority fraction in both profiles, rotated CIFAR-10 and FEMNIST
"""

from collections.abc import Iterable

from fedlib.papers import _adaptive_experts_settings as scales
from fedlib.papers import _frame
from fedlib.papers._adaptive_experts_criteria import criteria
from fedlib.papers._adaptive_experts_settings import Setting
from fedlib.spec import Figure, Paper, Run, Table

TITLE = "Adaptive Expert Models"
CITATION = (
    "M. Isaksson, E. Listo Zec, R. Coster, D. Gillblad, S. Girdzijauskas: Adaptive Expert Models "
    "for Personalization in Federated Learning, FL-IJCAI 2022 (official code: "
    "EricssonResearch/fl-moe)"
)

BOTH = ("eps", "none")
PROTOCOLS = [
    {"name": "moe"},
    {"name": "ifca"},
    {"name": "ensemble"},
    {"name": "finetuned"},
    {"name": "local"},
]
MIXTURES = [{"name": "moe"}, {"name": "moe_gate"}, {"name": "ifca"}]
IFCA_OF_ALL = {"name": "default", "key": "ifca"}
VARIANTS = {
    "parameter": "exploration",
    "values": [
        {"value": "eps", "title": "ε-greedy"},
        {"value": "none", "title": "No exploration"},
    ],
}
TABLE_2 = "table2-p{p:.1f}-{label}"
CLIENTS = "partition.num_clients"
BY_P = {"parameter": "partition.p", "of": "federation", "symbol": "p"}
NETWORKS = [
    {"title": "Global", "key": "global"},
    {"title": "Local", "key": "local"},
    {"title": "Gate", "key": "gate"},
]
TRIALS = (
    "Mean over clients of the accuracy on their own test images, one federated training evaluated "
    "five ways; the spread is over trials."
)


def declare(scale: str) -> Paper:
    """The paper at one scale.

    Raises:
      ConfigError: for an unknown scale.
    """
    about = {"name": "adaptive_experts", "title": TITLE, "citation": CITATION}
    return _frame.declare(scale, scales, _exhibits, **about)


def _exhibits(
    settings: tuple[Setting, ...], runs: tuple[Run, ...]
) -> tuple[dict[str, Table], dict[str, Figure]]:
    tables = _tables(settings, runs) | {"criteria": criteria(settings, runs)}
    return tables, _figures(settings, runs)


def _tables(settings: tuple[Setting, ...], runs: tuple[Run, ...]) -> dict[str, Table]:
    primary, clean, others = (_names(settings, role) for role in ("table2", "clean", "other"))
    clients, opted_out = (_names(settings, role) for role in ("clients", "opt_out"))
    grid = {"kind": "protocol_grid", "labels": BOTH}
    return {
        "methods": Table(
            **grid,
            title="Personalised accuracy by majority fraction",
            caption=f"The paper's Table 2. {TRIALS}",
            federations=primary,
            params={"protocols": PROTOCOLS, "parameter": "partition.p"},
            published=TABLE_2,
        ),
        "hyperparameters": Table(
            kind="hyperparameters",
            title="Hyper-parameters",
            caption="The paper's Table 1, rendered from the declared runs. Weight decay outside "
            "the federated training is 0 in the profile published, because the official code "
            "does not pass it on.",
            labels=("eps",),
            federations=primary[:1],
            params={"columns": NETWORKS, "rows": _hyperparameters()},
            published="table1",
        ),
        "methods_clean": Table(
            **grid,
            title="Personalised accuracy, profile clean",
            caption=f"{TRIALS} No ReLU on logits, weight decay as in Table 1, and every decision "
            "on held-out training data.",
            federations=clean,
            params={"protocols": PROTOCOLS, "parameter": "partition.p"},
        ),
        "other_data": Table(
            **grid,
            title="Personalised accuracy on other data",
            caption=f"{TRIALS} The paper shows figures of these data sets and no numbers.",
            federations=others,
            params={"protocols": PROTOCOLS, "parameter": None},
        ),
        "cluster_recovery": Table(
            kind="cluster_recovery",
            title="Clusters recovered from rotated images",
            caption="Purity of the clusters that clients form by the model that fits them best. "
            "The paper's text has IFCA without exploration find the two true clusters with two "
            "models, and exploration need more.",
            params={"weights": None, "choice": "choice"},
            **_recovered(settings, runs),
        ),
        "gate_only": Table(
            **grid,
            title="What a mixture trains",
            caption="Mixtures that train the client's copies of all experts along with the gate "
            "(MoE), mixtures that train the gate alone, and the best single expert (IFCA). The "
            "paper is silent on it, and its configurations differ (X10).",
            federations=_names((s for s in settings if s.both_mixtures), "table2"),
            params={"protocols": MIXTURES, "parameter": "partition.p"},
        ),
        "clients": Table(
            kind="protocol_grid",
            title="Number of clients",
            caption="The paper does not say how many clients there are; its configurations have 50 "
            "of which 5 train in a round, or 20 that all do. The number to take is the one whose "
            "IFCA without exploration is nearer to Table 2's.",
            labels=("none",),
            federations=primary[:1] + clients if clients else (),
            params={"protocols": [IFCA_OF_ALL], "parameter": CLIENTS, "symbol": "K"},
            published=TABLE_2,
        ),
        "opt_out": Table(
            **grid,
            title="Clients that opt out of training",
            caption=f"Accuracy of the clients that never train, {scales.OPT_OUT:.0%} of all: they "
            "get the clusters' models and train experts and gates of their own. The official code "
            "has this option and its configurations do not use it (X16).",
            federations=opted_out,
            params={"protocols": PROTOCOLS, "parameter": "partition.p", "group": "unseen"},
        ),
        "headlines": Table(
            kind="headlines",
            title="Claims of the text",
            caption="What the paper's text claims at the largest majority fraction, recomputed.",
            labels=BOTH,
            federations=primary[-1:],
            params={"protocols": PROTOCOLS, "cells": TABLE_2, "claims": _claims(primary[-1])},
            published="text",
        ),
        "schedules": Table(
            kind="protocol_grid",
            title="Schedules of exploration",
            caption="The schedules that the official code has besides the constant one.",
            labels=(
                *BOTH,
                *dict.fromkeys(x.replace("_", "-") for s in settings for x in s.schedules),
            ),
            federations=_names((s for s in settings if s.schedules), "table2"),
            params={"protocols": PROTOCOLS, "parameter": "partition.p"},
        ),
        "cost": Table(
            kind="cost",
            title="What training costs",
            caption="Training examples, arithmetic and traffic of the federated training, in which "
            "a client is sent every cluster's model and sends one back; and what clients train on "
            "their own afterwards, which communicates nothing. Local experts are part of that; "
            "where they have a row, they were trained once for all others.",
            labels=(*BOTH, *dict.fromkeys(x.label for x in runs if x.label == scales.LOCALS)),
            federations=tuple(setting.data.name for setting in settings),
            params={"personal": True},
        ),
    }


def _figures(settings: tuple[Setting, ...], runs: tuple[Run, ...]) -> dict[str, Figure]:
    primary, others = _names(settings, "table2"), _names(settings, "other")
    some_p = tuple(dict.fromkeys((primary[0], primary[len(primary) // 2], primary[-1])))
    return {
        "methods": Figure(
            kind="protocol_sweep",
            title="Accuracy by majority fraction",
            caption=f"The paper's Figure 3. {TRIALS}",
            labels=BOTH,
            federations=primary,
            params={
                "protocols": PROTOCOLS,
                **BY_P,
                "panels": "variant",
                "variants": VARIANTS,
            },
            published=TABLE_2,
        ),
        "effect_of_clusters": Figure(
            kind="protocol_sweep",
            title="Effect of the number of clusters",
            caption=f"The paper's Figure 4. {TRIALS}",
            published=TABLE_2,
            **_swept(settings, runs, "table2"),
        ),
        "effect_of_clusters_other": Figure(
            kind="protocol_sweep",
            title="Effect of the number of clusters on other data",
            caption="The paper's text finds nine clusters best on FEMNIST. On rotated images IFCA "
            "finds the true clusters with as many models, and exploration needs more. It prints "
            "no numbers.",
            **_swept(settings, runs, "other"),
        ),
        "cluster_usage": Figure(
            kind="cluster_usage",
            title="Clients by cluster",
            caption="The paper's Figure 5: how many clients end up with each cluster's model, "
            "clusters sorted by that number.",
            labels=BOTH,
            federations=some_p,
        ),
        "cluster_usage_other": Figure(
            kind="cluster_usage",
            title="Clients by cluster on other data",
            caption="How many clients end up with each cluster's model. Rotated images have equal "
            "true clusters, one for each angle.",
            labels=BOTH,
            federations=others,
        ),
        "client_accuracy": Figure(
            kind="client_accuracy_cdf",
            title="Accuracy client by client",
            caption="The paper's Figure 6: share of clients whose accuracy is at most the value on "
            "the axis.",
            labels=BOTH,
            federations=(primary[-1], *others),
            params={"protocols": PROTOCOLS, "variants": VARIANTS},
        ),
        "gate_weights": Figure(
            kind="gate_weights",
            title="What gates trust",
            caption="Weight that a client's gate gives each expert, averaged over its test data.",
            labels=BOTH,
            federations=some_p,
        ),
        "exploration": Figure(
            kind="exploration",
            title="Which cluster is trained",
            caption="Share of a round's clients that train each cluster's model.",
            labels=BOTH,
            federations=some_p,
        ),
        "accuracy_over_bytes": Figure(
            kind="accuracy_over_bytes",
            title="Accuracy over communication",
            caption="Accuracy with the best cluster's model (IFCA) against what all clients have "
            "sent and received, four bytes per number.",
            labels=BOTH,
            federations=primary + others,
        ),
    }


def _names(settings: Iterable[Setting], role: str) -> tuple[str, ...]:
    """Federations that are there for this."""
    return tuple(setting.data.name for setting in settings if setting.role == role)


def _swept(settings: tuple[Setting, ...], runs: tuple[Run, ...], role: str) -> dict:
    """What a figure over numbers of clusters shows."""
    federations = _names((setting for setting in settings if setting.sweep), role)
    labels = dict.fromkeys(run.label for run in runs if run.federation in federations)
    return {
        "labels": tuple(x for x in labels if x in BOTH or x.startswith(("eps-j", "none-j"))),
        "federations": federations,
        "params": {
            "protocols": PROTOCOLS,
            "parameter": "num_experts",
            "symbol": "J",
            "variants": VARIANTS,
        },
    }


def _recovered(settings: tuple[Setting, ...], runs: tuple[Run, ...]) -> dict:
    """All runs on data with true clusters."""
    federations = tuple(s.data.name for s in settings if "rotations" in s.data.params)
    labels = dict.fromkeys(run.label for run in runs if run.federation in federations)
    labels.pop(scales.LOCALS, None)  # they have no clusters
    return {"labels": tuple(labels), "federations": federations}


def _hyperparameters() -> list[dict]:
    """Rows of Table 1, and where a declared run has each value."""
    widths = [
        {
            "title": title,
            "key": key,
            "paths": {
                "global": f"model_params.{key}",
                "local": f"modules.expert.params.{key}",
                "gate": f"modules.gate.params.{key}",
            },
        }
        for title, key in (
            ("First convolution", "conv1"),
            ("Second convolution", "conv2"),
            ("Fully connected", "hidden"),
            ("Dropout", "dropout"),
        )
    ]
    solver = [
        {
            "title": title,
            "key": key,
            "paths": {
                "global": f"local.{key}",
                "local": f"params.local_{key}",
                "gate": f"params.gate_{key}",
            },
        }
        for title, key in (("Learning rate", "lr"), ("Weight decay", "weight_decay"))
    ]
    alone = [
        {"title": "Local epochs", "key": "local_epochs", "paths": {"global": "local.epochs"}},
        {"title": "ε", "key": "epsilon", "paths": {"global": "params.epsilon"}},
    ]
    return [solver[0], *widths, solver[1], *alone]


def _claims(federation: str) -> list[dict]:
    """The numbers of the text as arithmetic on cells of Table 2 (section 7)."""

    def cell(label: str, protocol: str, statistic: str = "mean") -> dict:
        return {
            "federation": federation,
            "label": label,
            "protocol": protocol,
            "statistic": statistic,
        }

    def claim(title: str, formula: str, a: dict, b: dict, metric: str, note: str = "") -> dict:
        printed = {"label": "moe", "metric": metric}
        made = {"title": title, "formula": formula, "cells": [a, b], "published": printed}
        return made | ({"note": note} if note else {})

    return [
        claim(
            "MoE with exploration above IFCA without",
            "difference",
            cell("eps", "moe"),
            cell("none", "ifca"),
            "accuracy_gain_over_ifca",
        ),
        claim(
            "MoE with exploration above Local",
            "difference",
            cell("eps", "moe"),
            cell("none", "local"),
            "accuracy_gain_over_local",
        ),
        claim(
            "Spread of MoE below that of IFCA",
            "reduction",
            cell("none", "ifca", "std"),
            cell("eps", "moe", "std"),
            "variance_reduction_over_ifca",
            "The text speaks of the variance between clients; the number is that of the spread "
            "over trials in Table 2.",
        ),
        claim(
            "Spread of Local below that of MoE",
            "reduction",
            cell("eps", "moe", "std"),
            cell("none", "local", "std"),
            "variance_excess_over_local",
            "The printed number takes 0.32 for Local, where Table 2 has 0.31.",
        ),
    ]
