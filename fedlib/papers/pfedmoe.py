"""pFedMoE: a mixture of a shared and a private extractor, its baselines, ablations and pictures.

Paper: Yi, Yu, Ren, Zhang, Wang, Liu, Li, "pFedMoE: Data-Level Personalization with Mixture of
Experts for Model-Heterogeneous Personalized Federated Learning", 2024 (arXiv:2402.01350). There is
no official code, and its tables could not be read: published numbers are of a sibling paper, or
follow from both. Every value has its source in `_pfedmoe_settings` and `_pfedmoe_scales`. What
pFedMM's code base calls pFedMoE is another method, `gated_experts`.

Scales:
  demo     digits in place of all data sets; settings of ours
  reduced  a tenth of CIFAR-10 and MNIST, ten clients, 40 and 5 rounds, most runs once
  full     the paper's data sets, models, federations and rounds
"""

from collections.abc import Iterable

from fedlib.papers import _frame
from fedlib.papers import _pfedmoe_scales as scales
from fedlib.papers._pfedmoe_criteria import criteria
from fedlib.papers._pfedmoe_settings import (
    BASELINES,
    COMPARED,
    EXTRACTORS,
    GATES,
    HOMOGENEOUS,
    MAIN,
    MUTUAL,
    SAME,
    Setting,
)
from fedlib.spec import Figure, Paper, Run, Table

TITLE = "pFedMoE"
CITATION = (
    "L. Yi, H. Yu, C. Ren, H. Zhang, G. Wang, X. Liu, X. Li: pFedMoE: Data-Level Personalization "
    "with Mixture of Experts for Model-Heterogeneous Personalized Federated Learning, 2024 "
    "(arXiv:2402.01350)"
)

MEAN = {"metric": "accuracy_client_mean"}
SETTINGS = {  # name: what clients have, suffix of labels
    "heterogeneous": ("five architectures in turn, CNN-1 to CNN-5", ""),
    "homogeneous": ("one architecture, CNN-1", SAME),
}
SOURCES = [
    {"name": "sibling", "mark": "s", "title": "pFedES (AAAI 2025), a sibling paper with the same "
     "first author, data, models and baselines; ± its standard deviation over three trials"},
    {"name": "inferred", "mark": "i", "title": "not printed: two printed gains of pFedMoE, added "
     "to two baselines of the sibling paper, both give this number"},
]  # fmt: skip
CURVES = ("pfedmoe", *BASELINES)
COMMON = [
    {"title": "Own test sets", **MEAN},
    {"title": "Shared test set", "split": "shared", **MEAN},
]
AGGREGATED = [
    {"title": "Extractor as trained", **MEAN},
    {"title": "Extractor as aggregated", "protocol": "aggregated", **MEAN},
]
KINDS = ["Global expert", "Local expert", "Mixture"]


def declare(scale: str) -> Paper:
    """The paper at one scale.

    Raises:
      ConfigError: for an unknown scale.
    """
    about = {"name": "pfedmoe", "title": TITLE, "citation": CITATION}
    return _frame.declare(scale, scales, _exhibits, **about)


def _exhibits(
    settings: tuple[Setting, ...], runs: tuple[Run, ...]
) -> tuple[dict[str, Table], dict[str, Figure]]:
    tables, figures = {}, {}
    for name in SETTINGS:
        tables |= _tables(name, settings, runs)
        figures |= _figures(name, settings, runs)
    tables |= {**_ablations(settings, runs), "criteria": criteria(settings, runs)}
    figures |= {**_of_data(settings, runs), **_of_experts(settings)}
    return tables, figures


def _tables(name: str, settings: tuple[Setting, ...], runs: tuple[Run, ...]) -> dict[str, Table]:
    """Those of one setting: accuracy, gains, costs."""
    what, suffix = SETTINGS[name]
    labels = MAIN if name == "heterogeneous" else HOMOGENEOUS
    main = _where(settings, runs, "main", labels)
    targets = _targets(settings, main)
    cifar = tuple(x for x in main if x.startswith("cifar")) or main
    compared = tuple(f"{label}{suffix}" for label in ("pfedmoe", *BASELINES))
    compared_on = _where(settings, runs, "main", compared, of=cifar, all_of=True)
    return {
        f"accuracy_{name}": Table(
            kind="beside_published",
            title=f"Mean accuracy, {name} models",
            caption=f"Clients have {what}. The paper's own table could not be read.",
            labels=_labels(labels, runs, main),
            federations=main,
            params={
                "sources": SOURCES,
                "names": {
                    s.data.name: f"{name}-{s.published}"
                    for s in settings
                    if s.published and s.data.name in main
                },
                "others": {f"pfedes{suffix}": "pFedES"},
                **MEAN,
            },
            published=f"sibling-{name}",
        ),
        f"gains_{name}": Table(
            kind="gains",
            title=f"Gain of pFedMoE over the best baselines, {name} models",
            caption="The best of all seven baselines of the paper, and of those of its own "
            "category, mutual learning. Its text has the ranges over CIFAR-10 and CIFAR-100.",
            labels=_labels(compared, runs, compared_on),
            federations=compared_on,
            params={
                "of": f"pfedmoe{suffix}",
                "groups": [
                    {"title": "all baselines", "labels": list(compared[1:]), "gain": "gain"},
                    {
                        "title": "mutual learning",
                        "labels": [f"{label}{suffix}" for label in MUTUAL],
                        "gain": "gain_mutual",
                    },
                ],
                **MEAN,
            },
            published=f"range-{name}",
        ),
        f"to_target_{name}": Table(
            kind="to_target",
            title=f"Rounds, communication and computation to a target, {name} models",
            caption="The target is 90 % on CIFAR-10, and 70, 60 and 50 % on CIFAR-100 with 10, 50 "
            "and 100 clients; at other scales and on other data sets it is ours.",
            labels=_labels(labels, runs, tuple(targets)),
            federations=tuple(targets),
            params={"targets": targets, **MEAN},
        ),
        f"repeated_{name}": Table(
            kind="beside_published",
            params={"sources": [], "names": {}, **MEAN},
            **_repeated(name, settings, runs),
        ),
        f"cost_{name}": Table(
            kind="cost",
            title=f"What training costs, {name} models",
            caption="Training examples, arithmetic and traffic of all clients together.",
            labels=_labels(labels, runs, main),
            federations=main,
        ),
    }


def _targets(settings: tuple[Setting, ...], federations: tuple[str, ...]) -> dict[str, float]:
    """The targets of those federations that have one."""
    return {s.data.name: s.target for s in settings if s.data.name in federations and s.target}


def _repeated(name: str, settings: tuple[Setting, ...], runs: tuple[Run, ...]) -> dict:
    """What the table and the figure have in common of runs that alone have three seeds."""
    what, suffix = SETTINGS[name]
    labels = tuple(f"{label}{suffix}" for label in COMPARED)
    return {
        "title": f"pFedMoE and the baselines of the criteria, {name} models",
        "caption": f"Clients have {what}. At this scale, only these runs have three seeds.",
        "labels": labels,
        "federations": _where(settings, runs, "compared", labels),
    }


def _ablations(settings: tuple[Setting, ...], runs: tuple[Run, ...]) -> dict[str, Table]:
    """The gate, the size of the small extractor, and a test set that all share."""
    gate = _where(settings, runs, "gate", GATES)
    extractor = _where(settings, runs, "extractor", EXTRACTORS)
    shared = _where(settings, runs, "gate", CURVES)
    shares = _where(settings, runs, "shares", scales.FEW)
    return {
        "gate": Table(
            kind="views",
            title="The gate: normalisation, width, rate and what it is for",
            caption="pFedMoE with 1-D switch norm on the input, 64 hidden units and rate 0.01, "
            "then one change at a time. The sources leave all three open.",
            labels=_labels(GATES, runs, gate),
            federations=gate,
            params={"columns": AGGREGATED},
        ),
        "extractor_size": Table(
            kind="views",
            title="Size of the shared extractor",
            caption="Bodies of CNN-1 to CNN-5, of which the last is the paper's.",
            labels=_labels(EXTRACTORS, runs, extractor),
            federations=extractor,
            params={"columns": AGGREGATED},
        ),
        "shares": Table(
            kind="views",
            title="Even and uneven shares of a class",
            caption="Owners of a class share it about evenly, or in the proportions of a Dirichlet "
            f"draw with concentration {scales.UNEVEN:g}, which is ours.",
            labels=_labels(scales.FEW, runs, shares[-1:]),
            federations=shares,
            params={"columns": COMMON[:1]},
        ),
        "shared_test_set": Table(
            kind="views",
            title="A test set that all clients share",
            caption="The test examples of all clients together, most of whose classes a client "
            "has never seen, beside its own.",
            labels=_labels(CURVES, runs, shared),
            federations=shared,
            params={"columns": COMMON},
        ),
    }


def _figures(name: str, settings: tuple[Setting, ...], runs: tuple[Run, ...]) -> dict[str, Figure]:
    """Those of one setting: curves, and clients one by one."""
    what, suffix = SETTINGS[name]
    labels = tuple(f"{label}{suffix}" for label in CURVES)
    main = _where(settings, runs, "main", labels)
    compared = _where(settings, runs, "main", labels, all_of=True)
    everything = MAIN if name == "heterogeneous" else HOMOGENEOUS
    targets = _targets(settings, _where(settings, runs, "main", everything))
    return {
        f"accuracy_over_rounds_{name}": Figure(
            kind="accuracy_over_rounds",
            title=f"Mean accuracy over rounds, {name} models",
            caption=f"Clients have {what}.",
            labels=_labels(labels, runs, main),
            federations=main,
            params=dict(MEAN),
        ),
        f"repeated_over_rounds_{name}": Figure(
            kind="accuracy_over_rounds", params=dict(MEAN), **_repeated(name, settings, runs)
        ),
        f"cost_to_target_{name}": Figure(
            kind="cost_to_target",
            title=f"Communication and computation to a target, {name} models",
            caption=f"Clients have {what}. Without a bar: the target is not reached.",
            labels=_labels(everything, runs, tuple(targets)),
            federations=tuple(targets),
            params={"targets": targets, **MEAN},
        ),
        f"client_differences_{name}": Figure(
            kind="client_differences",
            title=f"pFedMoE and the best baseline, client by client, {name} models",
            caption="Accuracy on a client's own test examples, minus that of the baseline with the "
            "highest mean.",
            labels=_labels(labels, runs, compared),
            federations=compared,
            params={"of": f"pfedmoe{suffix}"},
        ),
    }


def _of_data(settings: tuple[Setting, ...], runs: tuple[Run, ...]) -> dict[str, Figure]:
    """Accuracy over what clients' data are like."""
    figures = {}
    for role, parameter, symbol, title in (
        ("classes", "partition.classes_per_client", "s", "classes per client"),
        ("gamma", "partition.alpha", "γ", "how unlike clients are"),
    ):
        mine = [setting for setting in settings if role in setting.roles]
        names = tuple(setting.data.name for setting in mine)
        labels = tuple(x for x in scales.FEW if mine and all(x in s.labels for s in mine))
        figures[f"accuracy_over_{role}"] = Figure(
            kind="sweep",
            title=f"Mean accuracy over {title}",
            caption="Ten clients with heterogeneous models.",
            labels=labels,
            federations=names,
            params={
                "parameter": parameter,
                "methods": list(dict.fromkeys(r.method for r in runs if r.label in labels)),
                "symbol": symbol,
                "of": "federation",
                **MEAN,
            },
        )
    return figures


def _of_experts(settings: tuple[Setting, ...]) -> dict[str, Figure]:
    """What the gate weighs, and what it weighs with."""
    where = tuple(s.data.name for s in settings if "representations" in s.roles)
    return {
        "expert_weights": Figure(
            kind="expert_weights",
            title="Gate weight of the local expert",
            caption="By test example, and the mean by client and class.",
            labels=("pfedmoe",),
            federations=where,
        ),
        "representations": Figure(
            kind="representations",
            title="t-SNE of expert representations",
            caption="Test examples of some clients, by the two experts and their mixture.",
            labels=("pfedmoe",),
            federations=where,
            params={"kinds": KINDS},
        ),
    }


def _where(
    settings: Iterable[Setting],
    runs: Iterable[Run],
    role: str,
    labels: Iterable[str],
    of: tuple[str, ...] | None = None,
    all_of: bool = False,
) -> tuple[str, ...]:
    """The federations of a role that have some run of the labels, or `all_of` them.

    Args:
      of: only among these.
    """
    wanted = {*labels}
    there: dict[str, set[str]] = {}
    for run in runs:
        there.setdefault(run.federation, set()).add(run.label)
    found = []
    for setting in settings:
        name, mine = setting.data.name, there[setting.data.name] & wanted
        enough = mine == wanted if all_of else bool(mine)
        if role in setting.roles and enough and (of is None or name in of):
            found.append(name)
    return tuple(found)


def _labels(
    wanted: Iterable[str], runs: Iterable[Run], federations: tuple[str, ...]
) -> tuple[str, ...]:
    """Those of the labels that some of the federations have runs of."""
    there = {run.label for run in runs if run.federation in federations}
    return tuple(label for label in dict.fromkeys(wanted) if label in there)
