"""Acceptance criteria of pFedMM; section 10 of its specification, `README.md`.

Clustered FL and pFedMe are reported without a criterion: the one's row may depend on faults of the
authors' code (section 2.5), and the other has no curve. FedEM's and MoE's rows of the table are
not from the authors' runs, so these two are compared with curves (section 5.2). The 2 points for
a lead that is "clearly larger" are ours.
"""

from fedlib.papers._criteria import Acceptance, Case, cell
from fedlib.papers._frame import Settings, on

REPORTED = {"emnist": "EMNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def cases(settings: Settings, of: str) -> list[Case]:
    """A case for each federation of a name, with its title."""
    data = [setting.data for setting in on("main")(settings)]
    stand_ins = {one.name: one.title for one in data if one.name not in REPORTED}
    ordered = {name: title for name, title in REPORTED.items() if name != "emnist"}
    titles = {
        "ordered": stand_ins | ordered,
        "reported": REPORTED,
        "unseen": {s.data.name: s.data.family for s in on("unseen")(settings)},
    }
    return [Case(name, {"title": title}) for name, title in titles.get(of, {of: ""}).items()]


def number(_: object, federation: str, label: str, name: str) -> dict:
    """The last accuracy, that of unseen clients, or that at the best round, as in the paper."""
    if name in ("last", "unseen"):
        return cell(federation, label, **({"group": name} if name == "unseen" else {}))
    if name == "curve":  # EMNIST's peak is its end
        name = "curve-end" if federation == "emnist" else "curve-peak"
    printed = (name, federation, label, "accuracy") if federation in REPORTED else None
    return cell(federation, label, printed, at="best")


ACCEPTANCE = Acceptance(cases, number, published="main")
