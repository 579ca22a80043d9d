"""Acceptance criteria of Adaptive Expert Models; section 8 of its specification, `README.md`.

The claims of Table 2 are tested at every majority fraction of a scale; CIFAR-10 has published
numbers, which are to be met within about three points, with the right number of clients.
"""

from collections.abc import Mapping

from fedlib.papers._criteria import Acceptance, Case, cell
from fedlib.papers._frame import Settings, on
from fedlib.papers.adaptive_experts.settings import EXPLORATIONS, Setting

REPORTED = "cifar10"  # the data set of Table 2
METRIC = "accuracy_client_mean"
TITLES = {  # of the protocols, by published label
    **{"moe": "MoE", "ifca": "IFCA", "ensemble": "Ensemble", "finetuned": "Fine-tuned"},
    "local": "Local",
}


def cases(settings: Settings, of: str) -> list[Case]:
    """The cases of each name."""
    table2 = on("table2")(settings)
    names = [setting.data.name for setting in table2]
    match of:
        case "table2":
            return [*map(_at, table2)]
        case "fractions":
            gaps = " < ".join(f"eps@{name}:moe - none@{name}:ifca" for name in names)
            return [Case("", {"gaps": gaps, "local": " < ".join(f"eps@{name}" for name in names)})]
        case "reported":
            return [_at(setting) for setting in table2 if setting.data.dataset == REPORTED]
        case "rotated":
            data = [setting.data for setting in settings]
            turned = (one.name for one in data if len(one.partition.get("rotations", ())) == 2)
            return [Case(next(turned, "rotated-cifar10-2"))]
    return [Case(of)]


def _at(setting: Setting) -> Case:
    """A majority fraction, and which cell of Table 2 is to be above all others there."""
    p = setting.data.partition["p"]
    best = ("none", "finetuned") if p == 1 else ("eps", "moe")
    others = [(x, y) for x in EXPLORATIONS for y in TITLES if (x, y) != best]
    ranking = f"{':'.join(best)} > {', '.join(map(':'.join, others))}"
    return Case(setting.data.name, {"p": p, "best": _title(*best), "ranking": ranking})


def _title(label: str, protocol: str) -> str:
    return f"{TITLES[protocol]}({'ε' if label == 'eps' else 'none'})"


def number(settings: Mapping[str, Setting], federation: str, label: str, name: str) -> dict:
    """The right clusters, or a protocol's accuracy; Table 2 has both with and without exploration.

    Args:
      settings: of the scale, by federation.
    """
    data = settings[federation].data if federation in settings else None
    if name == "right_clusters":
        printed = ("text", REPORTED, "ifca", "num_clusters_with_right_assignment")
        known = data is None or data.dataset == REPORTED
        return cell(federation, label, printed if known else None, metric=name)
    printed = None
    if data and data.dataset == REPORTED:
        printed = (f"table2-p{data.partition['p']:.1f}-{label}", REPORTED, name, "accuracy")
    return cell(federation, label, printed, protocol=name, metric=METRIC, name=_title(label, name))


ACCEPTANCE = Acceptance(cases, number, published="text")
