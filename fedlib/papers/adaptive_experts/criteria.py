"""Acceptance criteria of Adaptive Expert Models; section 8 of its specification, `README.md`.

The claims of Table 2 are tested at every majority fraction of a scale; CIFAR-10 has published
numbers.
"""

from collections.abc import Iterable

from fedlib.papers._criteria import ascending, between, cell, descending, highest, reproduces, table
from fedlib.papers.adaptive_experts.settings import EXPLORATIONS, Setting
from fedlib.spec import Run
from fedlib.spec.criteria import Criteria

SOURCE = "Table 2"
REPORTED = "cifar10"  # the data set of Table 2
TOLERANCE = 0.03  # section 8: about three points, with the right number of clients
METRIC = "accuracy_client_mean"
PROTOCOLS = ("moe", "ifca", "ensemble", "finetuned", "local")  # as the published labels
TITLES = {
    **{"moe": "MoE", "ifca": "IFCA", "ensemble": "Ensemble", "finetuned": "Fine-tuned"},
    "local": "Local",
}
FEMNIST_CLUSTERS = (9, 3, 6, 12)  # the best number by the text, then the others


def criteria(settings: tuple[Setting, ...], runs: Iterable[Run]) -> Criteria:
    """The table of all criteria."""
    primary = [setting for setting in settings if "table2" in setting.roles]
    found = [x for setting in primary for x in _at(setting)]
    gaps = [[_of(s, "eps", "moe"), _of(s, "none", "ifca")] for s in primary]
    local = [_of(s, "eps", "local") for s in primary]
    found += [
        ascending("The gap of MoE(ε) to IFCA(none) grows with p", SOURCE, gaps),
        ascending("Local rises with p", SOURCE, local),
        *(x for setting in primary for x in _values(setting)),
        *_text(settings),
    ]
    return table(found, runs, "text")


def _of(setting: Setting, label: str, protocol: str) -> dict:
    """The cell of Table 2 of a protocol, with exploration ("eps") or without ("none")."""
    data = setting.data
    printed = (f"table2-p{data.partition['p']:.1f}-{label}", REPORTED, protocol, "accuracy")
    known = printed if data.dataset == REPORTED else None
    return cell(
        data.name, label, known, protocol=protocol, metric=METRIC, name=_title(label, protocol)
    )


def _title(label: str, protocol: str) -> str:
    return f"{TITLES[protocol]}({'ε' if label == 'eps' else 'none'})"


def _at(setting: Setting) -> list[dict]:
    """Orderings at one majority fraction."""
    p = setting.data.partition["p"]
    moe = _of(setting, "eps", "moe")
    best = ("none", "finetuned") if p == 1 else ("eps", "moe")
    others = [(label, way) for label in EXPLORATIONS for way in PROTOCOLS if (label, way) != best]
    return [
        descending(
            f"MoE(ε) above IFCA(none) at p = {p:g}",
            SOURCE,
            [moe, _of(setting, "none", "ifca")],
            main=True,
        ),
        descending(
            f"MoE(ε) above MoE(none) at p = {p:g}", SOURCE, [moe, _of(setting, "none", "moe")]
        ),
        descending(
            f"MoE(ε) above Fine-tuned(ε) at p = {p:g}",
            SOURCE,
            [moe, _of(setting, "eps", "finetuned")],
        ),
        highest(
            f"{_title(*best)} highest of all at p = {p:g}",
            SOURCE,
            [_of(setting, *one) for one in (best, *others)],
        ),
    ]


def _values(setting: Setting) -> list[dict]:
    """Every cell near its published number, on the data set of Table 2."""
    if setting.data.dataset != REPORTED:
        return []
    p = setting.data.partition["p"]
    return [
        reproduces(
            f"Within 3 points of the paper at p = {p:g}, {told}",
            SOURCE,
            [_of(setting, label, protocol) for protocol in PROTOCOLS],
            tolerance=TOLERANCE,
        )
        for label, told in EXPLORATIONS.items()
    ]


def _text(settings: tuple[Setting, ...]) -> list[dict]:
    """Claims of the text about other data."""
    angles = {s.data.name: s.data.partition.get("rotations", ()) for s in settings}
    turned = next((s.data for s in settings if len(angles[s.data.name]) == 2), None)
    rotated = turned.name if turned else "rotated-cifar10-2"
    counted = ("text", REPORTED, "ifca", "num_clusters_with_right_assignment")
    known = counted if turned is None or turned.dataset == REPORTED else None
    by_number = [
        cell(
            *("femnist", "eps" if j == 9 else f"eps-j{j}"),
            protocol="moe",
            metric=METRIC,
            name=f"{j} clusters",
        )
        for j in FEMNIST_CLUSTERS
    ]
    best = {"exhibit": "text", "dataset": "femnist", "label": "moe", "metric": "best_num_clusters"}
    return [
        between(
            "Rotated images, two models: IFCA(none) finds both clusters",
            "Text",
            [cell(rotated, "none", known, metric="right_clusters")],
            at_least=2,
            unit="number",
            note="Number of angles whose clients all have a model that nobody else has, mean over "
            "seeds",
        ),
        highest(
            "FEMNIST: MoE(ε) best with nine clusters",
            "Text",
            by_number,
            published=best,
            note="Published: the best number",
        ),
    ]
