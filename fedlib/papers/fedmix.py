"""FedMix: a variational mixture of experts, its baselines, diagnostics and special experiments.

Paper: Reisser, Louizos, Gavves, Welling, "Federated Mixture of Experts", ICLR 2021 submission with
appendices A to I (later arXiv:2107.06724). There is no official code.
Every value has its source in `_fedmix_settings` and `_fedmix_scales`.

Scales:
  demo     digits in place of all data sets; settings of ours
  reduced  CIFAR-10 and MNIST with fewer rounds, and smaller experts for CIFAR-10
  full     the paper's data sets, models and rounds
"""

from collections.abc import Iterable

from fedlib.papers import _fedmix_scales as scales
from fedlib.papers import _frame
from fedlib.papers._fedmix_criteria import criteria
from fedlib.papers._fedmix_settings import ETAS, LENET_LINES, MANY_EXPERTS, Setting
from fedlib.spec import Figure, Paper, Run, Table

TITLE = "FedMix"
CITATION = (
    "M. Reisser, C. Louizos, E. Gavves, M. Welling: Federated Mixture of Experts, ICLR 2021 "
    "submission (arXiv:2107.06724)"
)

TABLE_1 = ("fedavg", "biased-fedavg", "local-global", "fedmix-k2", "fedmix-k4", "fedmix-k10")
PRUNED = ("fedmix-k4-eta0.99", "fedmix-k10-eta0.9")  # CIFAR-100
BY_TRAFFIC = {"unit": "GB", "scale": "linear"}
SHADED = {"shaded": "fedmix"}  # where only FedMix is varied, by numbers
MEAN = {"metric": "accuracy_client_mean"}
# Pooled over validation sets, so that every example of their union counts the same (section 3).
NEW_SHARD = {"protocol": "new_shard", "metric": "accuracy"}
FINETUNED = {"protocol": "finetuned", **MEAN}
KNOWN = {"title": "Known clients"}
WAYS = [
    KNOWN,
    {"title": "After local fine-tuning", "protocol": "finetuned"},
    {"title": "New shard, no labels", "protocol": "new_shard", "metric": "accuracy"},
    {"title": "New clients with labels", "group": "unseen"},
    {"title": "New clients, no labels", "group": "unseen", "protocol": "new_shard"},
]
APPENDIX_F = [
    {"title": "Known clients, validation", "split": "val", "key": "known"},
    {"title": "New shard, p(s)", "protocol": "new_shard", "metric": "accuracy"},
    {"title": "New shard, p(s|x) of VAEs", "protocol": "new_shard_vae", "metric": "accuracy"},
]
MEANING = {
    "val": "Mean client accuracy on validation sets.",
    "test": "Mean client accuracy on test sets, as these federations have no validation sets.",
}


def declare(scale: str) -> Paper:
    """The paper at one scale.

    Raises:
      ConfigError: for an unknown scale.
    """
    about = {"name": "fedmix", "title": TITLE, "citation": CITATION}
    return _frame.declare(scale, scales, _exhibits, **about)


def _exhibits(
    settings: tuple[Setting, ...], runs: tuple[Run, ...]
) -> tuple[dict[str, Table], dict[str, Figure]]:
    figures = {
        **_learning_curves(settings, runs),
        **_protocol_curves(settings, runs),
        **_diagnostics(settings, runs),
    }
    return _tables(settings, runs) | {"criteria": criteria(settings, runs)}, figures


def _tables(settings: tuple[Setting, ...], runs: tuple[Run, ...]) -> dict[str, Table]:
    averaged = {"cifar100": {"evaluations": 10}, "femnist": {"rounds": 2000}}  # Table 1
    primary = _named(settings, "accuracy")
    views = _named(settings, "views")
    vae = _named(settings, "vae")
    return {
        "accuracy_and_traffic": Table(
            kind="accuracy_and_traffic",
            title="Accuracy and communication",
            caption="The paper's Table 1: mean client test accuracy with the server's parameters, "
            "on CIFAR-10 after the last round, on CIFAR-100 the mean of the last ten evaluations, "
            "on FEMNIST over the last 2,000 rounds. FedAvg's 137.3 GB on CIFAR-10 and the 1,130 GB "
            "of two rows on CIFAR-100 do not follow the rule that all others do (F10).",
            labels=_labels(TABLE_1, runs, primary),
            federations=primary,
            params={"averaged": {name: averaged[name] for name in primary if name in averaged}},
            published="table1",
        ),
        "protocols": Table(
            kind="views",
            title="Known clients, new shards and new clients",
            caption="Accuracy on test sets after the last round: means over clients, but for a new "
            "shard without labels, for which all examples count the same. The paper shows curves "
            "of these on validation sets and prints no numbers.",
            labels=_labels(
                (*LENET_LINES, *(f"fedmix-k4-eta{eta:g}" for eta in ETAS), *PRUNED), runs, views
            ),
            federations=views,
            params={"columns": _ways(settings)},
        ),
        "new_shard_by_autoencoders": Table(
            kind="views",
            title="New shards: gates weighed by p(s) or by autoencoders",
            caption="Appendix F of the paper: how likely an input is under the autoencoder of each "
            "client says whose gate to trust.",
            labels=_labels(("fedmix-vae", "fedavg"), runs, vae),
            federations=vae,
            params={"columns": APPENDIX_F},
            published="appendix-f-{label}",
        ),
        "cluster_recovery": Table(
            kind="cluster_recovery",
            title="Clusters recovered from permuted labels",
            caption="Purity of the clusters that clients form by their main expert, and how many "
            "experts are anybody's main one, over seeds. The paper shows one run, in which four "
            "experts found the four permutations.",
            **_of("clusters", settings),
        ),
        "leakage": Table(
            kind="leakage",
            title="How much of its labels a client's first update gives away",
            caption="Distance between the true distribution of a client's labels and the one that "
            "the server reads from the change of the output bias; the paper shows pictures only.",
            **_of("leakage", settings),
        ),
        "cost": Table(
            kind="cost",
            title="What training costs",
            caption="Training examples, arithmetic and traffic of all clients together.",
            labels=_labels(LENET_LINES, runs, primary),
            federations=primary,
        ),
    }


def _learning_curves(settings: tuple[Setting, ...], runs: tuple[Run, ...]) -> dict[str, Figure]:
    """Figures 3 to 6 and 11: accuracy of known clients over rounds and traffic."""
    figures = {}
    for split, suffix in (("val", ""), ("test", "_test")):
        mine = [s for s in settings if s.split == split]
        primary = _named(mine, "accuracy")
        lines = {
            "labels": _labels((*LENET_LINES, *PRUNED), runs, primary),
            "federations": primary,
        }
        figures |= {
            f"accuracy_over_traffic{suffix}": Figure(
                kind="accuracy_over_bytes",
                title="Accuracy over communication",
                caption=f"The paper's Figure 4, above. {MEANING[split]}",
                params={**MEAN, "split": split, **BY_TRAFFIC, **_until(mine, primary)},
                **lines,
            ),
            f"accuracy_over_rounds{suffix}": Figure(
                kind="accuracy_over_rounds",
                title="Accuracy over rounds",
                caption=f"The paper's Figure 4, below. {MEANING[split]}",
                params={**MEAN, "split": split},
                **lines,
            ),
        }
    ablation, rotations = _named(settings, "ablation"), _named(settings, "rotations")
    return figures | {
        "specialisation": Figure(
            kind="accuracy_over_rounds",
            title="Specialists or an ensemble",
            caption="The paper's Figure 3: with the entropy of q in the clients' objective, "
            f"experts do not specialise. {MEANING['val']}",
            labels=_labels(("fedmix-k4", "fedmix-k4-entropy", "fedavg"), runs, ablation),
            federations=ablation,
            params={**MEAN, "split": "val"},
        ),
        "rotations": Figure(
            kind="accuracy_over_rounds",
            title="Rotated digits",
            caption="The paper's Figures 5 and 6: q may depend on the label or on the angle. "
            f"{MEANING['test']}",
            labels=_labels(scales.ROTATION_LINES, runs, rotations),
            federations=rotations,
            params={**MEAN},
        ),
    }


def _protocol_curves(settings: tuple[Setting, ...], runs: tuple[Run, ...]) -> dict[str, Figure]:
    """Figures 11 to 13: numbers of experts, pruning, new shards and fine-tuning."""
    experts = ("fedavg", "biased-fedavg", *(f"fedmix-k{k}" for k in MANY_EXPERTS))
    pruning = ("fedavg", "fedmix-k4", *(f"fedmix-k4-eta{eta:g}" for eta in ETAS))
    shown = {
        "experts": (experts, "experts", "Number of experts", "Figure 11a"),
        "pruning": (pruning, "pruning", "Pruning of experts", "Figure 11b"),
    }
    figures = {}
    for name, (labels, role, title, number) in shown.items():
        federations = _named(settings, role)
        what = {"labels": _labels(labels, runs, federations), "federations": federations}
        later = chr(ord(number[-1]) + 2)
        figures |= {
            name: Figure(
                kind="accuracy_over_bytes",
                title=title,
                caption=f"The paper's {number}: known clients. {MEANING['val']}",
                params={**MEAN, "split": "val", **BY_TRAFFIC, **SHADED},
                **what,
            ),
            f"{name}_new_shard": Figure(
                kind="accuracy_over_bytes",
                title=f"{title}, new shard",
                caption=f"The paper's Figure 11{later}: a shard without labels, all validation "
                "examples of all clients.",
                params={**NEW_SHARD, "split": "val", **BY_TRAFFIC, **SHADED},
                **what,
            ),
        }
    for split, suffix in (("val", ""), ("test", "_test")):
        mine = [s for s in settings if s.split == split]
        for role, how, title, number, meaning in (
            ("new_shard", NEW_SHARD, "New shard", "Figure 12", "shards without labels."),
            ("finetuned", FINETUNED, "Fine-tuned", "Figure 13", "after a round of local training."),
        ):
            federations = _named(mine, role)
            what = {
                "labels": _labels((*LENET_LINES, *PRUNED), runs, federations),
                "federations": federations,
            }
            about = f"The paper's {number}: {meaning} {_on(split)}"
            figures |= {
                f"{role}_over_traffic{suffix}": Figure(
                    kind="accuracy_over_bytes",
                    title=f"{title} over communication",
                    caption=about,
                    params={**how, "split": split, **BY_TRAFFIC, **_until(mine, federations)},
                    **what,
                ),
                f"{role}_over_rounds{suffix}": Figure(
                    kind="accuracy_over_rounds",
                    title=f"{title} over rounds",
                    caption=about,
                    params={**how, "split": split},
                    **what,
                ),
            }
    return figures


def _diagnostics(settings: tuple[Setting, ...], runs: tuple[Run, ...]) -> dict[str, Figure]:
    """Figures 1, 7, 8 and 14."""
    divergence, tables = _named(settings, "divergence"), _named(settings, "tables")
    return {
        "gradient_divergence": Figure(
            kind="gradient_divergence",
            title="Divergence of the clients' updates",
            caption="The paper's Figure 1: half of one minus the cosine between two clients' "
            "differences, averaged over pairs by weight and added up over the tensors of a model; "
            "the mean over experts.",
            labels=_labels(("fedavg", "fedmix-k4"), runs, divergence),
            federations=divergence,
            params={"window": _window(settings)},
        ),
        "clusters": Figure(
            kind="client_matrices",
            title="Clusters of clients from permuted labels",
            caption="The paper's Figures 7 and 8: to which permutation a client belongs, and how "
            "probable its experts are for it, q(z|s).",
            **_of("clusters", settings),
        ),
        "experts_of_labels": Figure(
            kind="tables_over_time",
            title="Which expert is for which label",
            caption="The paper's Figure 14a: q(z|y) at the server after some rounds.",
            labels=_labels(("fedmix-k4-long",), runs, tables)
            or _labels(("fedmix-k4",), runs, tables),
            federations=tables,
        ),
        "collapse": Figure(
            kind="tables_over_time",
            title="Collapse of a plain mixture",
            caption="The paper's Figure 14b: mean probability that the gate gives each expert, by "
            "label, while the likelihood of the mixture is maximised directly, on all data in one "
            "place. The rounds together have the steps of one epoch.",
            params={"values": "p(expert | x), mean by label"},
            **_of("collapse", settings),
        ),
        "label_leakage": Figure(
            kind="label_leakage",
            title="Labels read from a first update",
            caption="The paper's Figures 9 and 10: the share of each label among a client's "
            "examples, and the one read from the change of the output bias.",
            **_of("leakage", settings),
        ),
    }


def _named(settings: Iterable[Setting], role: str) -> tuple[str, ...]:
    """The federations of a role."""
    return tuple(setting.data.name for setting in settings if role in setting.roles)


def _labels(
    wanted: tuple[str, ...], runs: tuple[Run, ...], federations: tuple[str, ...]
) -> tuple[str, ...]:
    """Those of the labels that some of the federations have runs of."""
    there = {run.label for run in runs if run.federation in federations}
    return tuple(label for label in dict.fromkeys(wanted) if label in there)


def _of(role: str, settings: tuple[Setting, ...]) -> dict[str, tuple[str, ...]]:
    """All labels and federations of a role."""
    mine = [setting for setting in settings if role in setting.roles]
    labels = dict.fromkeys(label for setting in mine for label in setting.labels)
    return {"labels": tuple(labels), "federations": _named(mine, role)}


def _ways(settings: tuple[Setting, ...]) -> list[dict]:
    """Columns of the table of protocols; new clients only where some federation has any."""
    new = any(s.data.partition.get("unseen_fraction") for s in settings if "views" in s.roles)
    return [way for way in WAYS if new or way.get("group") != "unseen"]


def _until(settings: list[Setting], federations: tuple[str, ...]) -> dict:
    """How far the paper's axes of traffic reach for these federations."""
    mine = [s for s in settings if s.data.name in federations and "accuracy" in s.roles]
    ends = {s.data.name: s.gb for s in mine if s.gb is not None}
    return {"until": ends} if ends else {}


def _window(settings: tuple[Setting, ...]) -> int:
    """Rounds of the sliding mean [R]: 50 of the paper's 2,000, at least 5."""
    rounds = max(s.rounds for s in settings if "divergence" in s.roles)
    return max(5, min(50, rounds // 10))


def _on(split: str) -> str:
    return {"val": "On validation sets.", "test": "On test sets."}[split]
