"""Acceptance criteria of pFedMoE: the targets of sections 9 and 9.1 of `README.md`.

Two points for pFedMoE itself are ours. Published numbers are comparable only at scale full.
"""

from collections.abc import Iterable, Iterator
from importlib import resources

from fedlib.papers import _criteria
from fedlib.papers._criteria import Case, cell
from fedlib.papers.pfedmoe.settings import VARIANTS, Setting
from fedlib.spec import Run
from fedlib.spec.criteria import Criteria

METRIC = "accuracy_client_mean"
ON_CIFAR10 = "cifar10-n10"


def criteria(settings: tuple[Setting, ...], runs: Iterable[Run]) -> Criteria:
    """The table of all criteria."""
    where = [setting.data.name for setting in settings]

    def cases(of: str) -> Iterator[Case]:
        """The main federation or its stand-in, data sets with few and many classes, or `of`."""
        if of == "classes":
            yield from _classes(settings)
        elif of == "main" and "digits-n10" in where and ON_CIFAR10 not in where:
            yield Case("digits-n10")
        else:
            yield Case(ON_CIFAR10)

    found = _criteria.criteria(resources.files(__package__) / "criteria.csv", cases, _number)
    return _criteria.table(found, runs, "sibling-heterogeneous-n10")


def _classes(settings: tuple[Setting, ...]) -> Iterator[Case]:
    """Of each data set the federation of the fewest classes per client, and that of the most."""
    chosen = [setting.data for setting in settings if "classes" in setting.roles]
    for dataset in dict.fromkeys(data.dataset for data in chosen):
        mine = [data for data in chosen if data.dataset == dataset]
        mine.sort(key=lambda data: data.partition["classes_per_client"])
        if len(mine) > 1:
            yield Case(mine[0].name, {"title": mine[0].title, "most": mine[-1].name})


def _number(federation: str, label: str, name: str) -> dict:
    """Bytes, the last mean accuracy, or that at the best round, which published numbers are of."""
    if name == "bytes":
        return cell(federation, label, metric=name)
    if name == "last":
        return cell(federation, label, metric=METRIC, at=name)
    same = "homogeneous" if VARIANTS[label].same else "heterogeneous"
    return cell(
        federation,
        label,
        (f"{name}-{same}-n10", "cifar10", label, METRIC),
        metric=METRIC,
        at="best",
    )
