"""Acceptance criteria of Adaptive Expert Models; section 8 of its specification, `README.md`.

The claims of Table 2 are tested at every majority fraction of a scale; CIFAR-10 has published
numbers, which are to be met within about three points, with the right number of clients.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from importlib import resources

from fedlib.papers import _criteria
from fedlib.papers._criteria import Case, cell
from fedlib.papers.adaptive_experts.settings import EXPLORATIONS, Setting
from fedlib.spec import Data, Run
from fedlib.spec.criteria import Criteria

REPORTED = "cifar10"  # the data set of Table 2
METRIC = "accuracy_client_mean"
TITLES = {  # of the protocols, by published label
    **{"moe": "MoE", "ifca": "IFCA", "ensemble": "Ensemble", "finetuned": "Fine-tuned"},
    "local": "Local",
}


def criteria(settings: tuple[Setting, ...], runs: Iterable[Run]) -> Criteria:
    """The table of all criteria."""
    primary = [setting for setting in settings if "table2" in setting.roles]
    names = [setting.data.name for setting in primary]
    turned = (s.data.name for s in settings if len(s.data.partition.get("rotations", ())) == 2)
    cases = {
        "table2": [*map(_at, primary)],
        "fractions": [
            Case(
                "",
                {
                    "gaps": " < ".join(f"eps@{name}:moe - none@{name}:ifca" for name in names),
                    "local": " < ".join(f"eps@{name}" for name in names),
                },
            )
        ],
        "reported": [_at(setting) for setting in primary if setting.data.dataset == REPORTED],
        "rotated": [Case(next(turned, "rotated-cifar10-2"))],
        "femnist": [Case("femnist")],
    }
    data = {setting.data.name: setting.data for setting in settings}
    file = resources.files(__package__) / "criteria.csv"
    return _criteria.table(
        _criteria.criteria(file, cases.__getitem__, partial(_number, data)), runs, "text"
    )


def _at(setting: Setting) -> Case:
    """A majority fraction, and which cell of Table 2 is to be above all others there."""
    p = setting.data.partition["p"]
    best = ("none", "finetuned") if p == 1 else ("eps", "moe")
    others = [(x, y) for x in EXPLORATIONS for y in TITLES if (x, y) != best]
    ranking = f"{':'.join(best)} > {', '.join(map(':'.join, others))}"
    return Case(setting.data.name, {"p": p, "best": _title(*best), "ranking": ranking})


def _title(label: str, protocol: str) -> str:
    return f"{TITLES[protocol]}({'ε' if label == 'eps' else 'none'})"


def _number(data: Mapping[str, Data], federation: str, label: str, name: str) -> dict:
    """The right clusters, or a protocol's accuracy, which Table 2 has with and without exploration.

    Args:
      data: the scale's federations by name.
    """
    here = data.get(federation)
    if name == "right_clusters":
        printed = ("text", REPORTED, "ifca", "num_clusters_with_right_assignment")
        known = here is None or here.dataset == REPORTED
        return cell(federation, label, printed if known else None, metric=name)
    printed = None
    if here and here.dataset == REPORTED:
        printed = (f"table2-p{here.partition['p']:.1f}-{label}", REPORTED, name, "accuracy")
    title = _title(label, name)
    return cell(federation, label, printed, protocol=name, metric=METRIC, name=title)
