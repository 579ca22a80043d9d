"""Acceptance criteria of pFedMM; section 10 of its specification, `README.md`.

Clustered FL and pFedMe are reported without a criterion: the curve of one ends below its row of the
table, and the other has no curve. FedEM's and MoE's rows of the table are not from the authors'
runs, so these two are compared with curves.
"""

from collections.abc import Iterable
from importlib import resources

from fedlib.papers import _criteria
from fedlib.papers._criteria import Case, cell
from fedlib.papers.pfedmm.settings import Setting
from fedlib.spec import Run
from fedlib.spec.criteria import Criteria

REPORTED = {"emnist": "EMNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def criteria(settings: tuple[Setting, ...], runs: Iterable[Run]) -> Criteria:
    """The table of all criteria."""
    apart = [s.data for s in settings if "unseen" in s.roles]
    stand_ins = {s.data.name: s.data.title for s in settings if "main" in s.roles}
    ordered = {name: title for name, title in (stand_ins | REPORTED).items() if name != "emnist"}
    titles = {
        "ordered": {x: ordered[x] for x in sorted(ordered, key=[*REPORTED].__contains__)},
        "reported": REPORTED,
        "unseen": {data.name: data.family or data.title for data in apart},
    }

    def cases(of: str) -> list[Case]:
        named = titles.get(of, {of: ""})
        return [Case(name, {"title": title}) for name, title in named.items()]

    file = resources.files(__package__) / "criteria.csv"
    return _criteria.table(_criteria.criteria(file, cases, _number), runs, "main")


def _number(federation: str, label: str, name: str) -> dict:
    """The last accuracy, that of unseen clients, or that at the best round, as in the paper."""
    if name in ("last", "unseen"):
        return cell(federation, label, **({"group": name} if name == "unseen" else {}))
    if name == "curve":  # EMNIST's peak is its end
        name = "curve-end" if federation == "emnist" else "curve-peak"
    printed = (name, federation, label, "accuracy") if federation in REPORTED else None
    return cell(federation, label, printed, at="best")
