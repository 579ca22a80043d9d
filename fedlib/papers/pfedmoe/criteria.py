"""Acceptance criteria of pFedMoE: the targets of sections 9 and 9.1 of `README.md`.

Two points for pFedMoE itself are ours. Published numbers are comparable only at scale full.
"""

from collections.abc import Iterable, Iterator

from fedlib.papers._criteria import Acceptance, Case, cell
from fedlib.papers._frame import Settings, on
from fedlib.papers.pfedmoe.settings import VARIANTS

METRIC = "accuracy_client_mean"
ON_CIFAR10 = "cifar10-n10"


def cases(settings: Settings, of: str) -> Iterable[Case]:
    """CIFAR-10; for "main" its stand-in at scale demo; for "classes" see `classes`."""
    if of == "classes":
        return classes(settings)
    names = [setting.data.name for setting in settings]
    return [Case(ON_CIFAR10 if of != "main" or ON_CIFAR10 in names else names[0])]


def classes(settings: Settings) -> Iterator[Case]:
    """Of each data set the federation of the fewest classes per client, and that of the most."""
    chosen = [setting.data for setting in on("classes")(settings)]
    for dataset in dict.fromkeys(data.dataset for data in chosen):
        varied = [data for data in chosen if data.dataset == dataset]
        varied.sort(key=lambda data: data.partition["classes_per_client"])
        if len(varied) > 1:
            yield Case(varied[0].name, {"title": varied[0].title, "most": varied[-1].name})


def number(_: object, federation: str, label: str, name: str) -> dict:
    """Bytes, the last mean accuracy, or that at the best round, which published numbers are of."""
    if name == "bytes":
        return cell(federation, label, metric=name)
    if name == "last":
        return cell(federation, label, metric=METRIC, at=name)
    same = "homogeneous" if VARIANTS[label].same else "heterogeneous"
    printed = (f"{name}-{same}-n10", "cifar10", label, METRIC)
    return cell(federation, label, printed, metric=METRIC, at="best")


ACCEPTANCE = Acceptance(cases, number, published="sibling-heterogeneous-n10")
