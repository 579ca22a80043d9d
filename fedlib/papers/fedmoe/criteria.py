"""Acceptance criteria of Fed-MoE: the orderings in its tables.

Sections are those of `README.md`. "Far" is 20 points, of ours; Table 2 has 37.2 and 36.1 at M = 50
and 100. Trainings on the same data in another order of batches are to be within 2 points, of ours.
The rows T1 to T16 of section 6 are about single numbers, and are tests.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from importlib import resources

from fedlib.papers import _criteria
from fedlib.papers._criteria import Case, cell
from fedlib.papers.fedmoe.presets import SETTINGS
from fedlib.papers.fedmoe.settings import (
    ABLATED,
    EXPERTS,
    PRINTED,
    PRINTED_AS,
    VARIANTS,
    Setting,
)
from fedlib.spec import Run
from fedlib.spec.criteria import Criteria

SERVER = {"group": "server", "at": "chosen"}  # the rule of the released code, here for all methods
VALUES = (
    "Accuracies are those of every method's state with the least loss on the server's validation "
    "examples. Numbers that the paper prints for M = 50 stand beside federations of 50 clients "
    "alone."
)
OF_DATASETS = {  # data sets of tables that do not have all four
    "table3": ("femnist",),
    "table4": ("femnist", "cifar10"),
    "table5": ("cifar10",),
    "table6": ("femnist", "cifar10"),
    "table8": ("femnist", "sent140"),
}
RISING = ("sent140", "yelp")  # where the paper's numbers rise with the number of clients, too


def criteria(settings: tuple[Setting, ...], runs: tuple[Run, ...]) -> Criteria:
    """The table of all criteria."""
    by_name = {setting.data.name: setting for setting in settings}
    cases, number = partial(_cases, settings), partial(_number, by_name)
    found = _criteria.criteria(resources.files(__package__) / "criteria.csv", cases, number)
    return _criteria.table(found, runs, "table2-m50", VALUES)


def skew_pairs(settings: Iterable[Setting]) -> list[tuple[Setting, Setting]]:
    """Each setting with skewed reserved data, and the one with even data of its data set."""
    evens = {setting.data.dataset: setting for setting in _of(settings, "even", "fedmoe")}
    return [(s, evens[s.data.dataset]) for s in _of(settings, "skewed", "fedmoe")]


def _of(settings: Iterable[Setting], role: str, *labels: str) -> Iterator[Setting]:
    """The settings with the role and with a run of each label."""
    return (s for s in settings if role in s.roles and {*labels} <= {*s.labels})


def _cases(settings: tuple[Setting, ...], of: str) -> Iterator[Case]:
    """The cases of each name in the file: a role, unless it is one of these."""
    match of:
        case "main":
            yield from map(_above, _of(settings, "main", "fedmoe"))
        case "far":
            for setting in _of(settings, "main", "fedmoe", "fedavg"):
                if setting.data.dataset == "cifar10" and setting.num_clients > 10:
                    yield _titled(setting)
        case "clients":
            for mine in _families(_of(settings, "main", "fedmoe")):
                if mine[0].data.dataset not in RISING:
                    yield _family(mine, "fedmoe", " > ")
        case "alone":
            for mine in _families(_of(settings, "main", "fedmoe", "centmoe")):
                if mine[0].data.dataset == "cifar10":
                    yield _family(mine, "centmoe", ", ")
        case "experts":
            for setting in _of(settings, "experts", "fedmoe"):
                for number in (setting.num_experts, *EXPERTS, 6):
                    usual = number == setting.num_experts
                    yield _titled(
                        setting, ours="fedmoe" if usual else f"fedmoe-k{number}", k=number
                    )
        case "reserved":
            for mine in _families(_of(settings, "reserved", "fedmoe")):
                yield _family(sorted(mine, key=lambda s: s.reserved), "fedmoe", " < ")
        case "skewed":
            for skewed, even in skew_pairs(settings):
                yield Case(even.data.name, {"title": even.data.family, "skewed": skewed.data.name})
        case "size":
            yield from map(_titled, _of(settings, "size", "fedmoe", "fedavg", "avg-moe"))
        case _:
            yield from map(_titled, _of(settings, of, "fedmoe"))


def _titled(setting: Setting, **fields: object) -> Case:
    return Case(setting.data.name, {"title": setting.data.title, **fields})


def _above(setting: Setting) -> Case:
    """A setting, and what the other methods of Table 2 are called that are run there."""
    rivals = [x for x in setting.labels if x in PRINTED and x != "fedmoe"]
    others = VARIANTS[rivals[0]].title if len(rivals) == 1 else "all other methods"
    return _titled(setting, others=others)


def _families(settings: Iterable[Setting]) -> list[list[Setting]]:
    """The settings by data set, of which a comparison needs two."""
    families: dict[str, list[Setting]] = {}
    for setting in settings:
        families.setdefault(setting.data.dataset, []).append(setting)
    return [mine for mine in families.values() if len(mine) > 1]


def _family(mine: list[Setting], label: str, sign: str) -> Case:
    """A data set, and the runs of a label on its federations as terms."""
    terms = sign.join(f"{label}@{setting.data.name}" for setting in mine)
    return Case("", {"title": mine[0].data.family, "terms": terms})


def _number(by_name: Mapping[str, Setting], federation: str, label: str, name: str) -> dict | None:
    """Bytes, or accuracy on the server's test examples beside that of a table."""
    setting = by_name[federation]
    if label not in setting.labels:
        return None
    if name == "bytes":
        return cell(federation, label, metric=name)
    exhibit, dataset = _exhibit(setting, name), setting.data.dataset
    usual = {"fedmoe": f"fedmoe-k{setting.num_experts}"} if name == "table3" else {}
    theirs = PRINTED_AS.get(name, usual).get(label, label)
    return cell(
        federation, label, (exhibit, dataset, theirs, "accuracy") if exhibit else None, **SERVER
    )


def _exhibit(setting: Setting, name: str) -> str:
    """The published exhibit with the federation's numbers; "" if there is none."""
    if name == "table2":
        return f"table2-m{setting.num_clients}" if setting.data.dataset in SETTINGS else ""
    known = setting.data.dataset in OF_DATASETS.get(name, SETTINGS)
    if not name or not known or setting.num_clients != ABLATED:
        return ""
    return f"{name}-{setting.reserved}" if name == "reserved" else name
