"""Acceptance criteria of Fed-MoE: the orderings in its tables.

Sections are those of `README.md`. "Far" is 20 points, of ours; Table 2 has 37.2 and 36.1 at M = 50
and 100. The rows T1 to T16 of section 6 are about single numbers: tests have these, or loops that
compute the same.
"""

from collections.abc import Iterable, Mapping, Sequence

from fedlib.papers._criteria import Acceptance, Case, cell
from fedlib.papers._frame import on
from fedlib.papers.fedmoe.columns import skew_pairs
from fedlib.papers.fedmoe.presets import SETTINGS
from fedlib.papers.fedmoe.settings import (
    ABLATED,
    EXPERTS,
    KEPT,
    PRINTED,
    PRINTED_AS,
    VARIANTS,
    Setting,
)

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
FALLING = ("digits", "femnist", "cifar10")  # data sets on which more clients are worse in the paper


def cases(settings: Sequence[Setting], of: str) -> Iterable[Case]:
    """The cases of each name in the file: a role, unless it is one of these."""
    main = on("main")(settings)
    match of:
        case "main":
            return map(_above, main)
        case "far":
            of_many = on("main", where=lambda setting: setting.num_clients > 10)(settings)
            return [_case(s) for s in of_many if s.data.dataset == "cifar10"]
        case "clients":
            return _together([s for s in main if s.data.dataset in FALLING], "fedmoe", " > ")
        case "experts":
            return [
                _case(s, ours="fedmoe" if k == s.num_experts else f"fedmoe-k{k}", k=k)
                for s in on("experts")(settings)
                for k in (s.num_experts, *EXPERTS, 6)
            ]
        case "reserved":
            return _together(on("reserved")(settings), "fedmoe", " < ")
        case "skewed":
            return [
                _case(even, title=even.data.family, skewed=skewed.data.name)
                for skewed, even in skew_pairs(settings)
            ]
        case _:
            runs = ("fedavg", "avg-moe") if of == "size" else ()
            roles = () if of in ("parts", "mains") else (of,)
            return map(_case, on(*roles, runs=runs)(settings))


def _case(setting: Setting, **fields: object) -> Case:
    return Case(setting.data.name, {"title": setting.data.title, **fields})


def _above(setting: Setting) -> Case:
    """A setting, and the title of the other methods of Table 2 that are run there."""
    rivals = [x for x in setting.labels if x in PRINTED and x != "fedmoe"]
    others = VARIANTS[rivals[0]].title if len(rivals) == 1 else "all other methods"
    return _case(setting, others=others)


def _together(settings: list[Setting], label: str, sign: str) -> Iterable[Case]:
    """For each data set with several settings, a label's runs, by clients and reserved examples."""
    for family in dict.fromkeys(setting.data.family for setting in settings):
        varied = [setting for setting in settings if setting.data.family == family]
        varied.sort(key=lambda setting: (setting.num_clients, setting.reserved))
        if len(varied) > 1:
            terms = sign.join(f"{label}@{setting.data.name}" for setting in varied)
            yield Case("", {"title": family, "terms": terms})


def number(settings: Mapping[str, Setting], federation: str, label: str, name: str) -> dict | None:
    """Bytes, or accuracy on the server's test examples beside that of a table."""
    setting = settings[federation]
    kept = KEPT.get(label)
    if kept in setting.also_top() and "kept" in setting.roles:
        of = ("table6", setting.data.dataset, label, "accuracy")
        printed = of if _exhibit(setting, "table6") else None
        about = {"group": "server", "protocol": f"top_{kept}", "name": f"Fed-MoE, top {kept}"}
        return cell(federation, "fedmoe", printed, **about)
    if label not in setting.labels:
        return None
    if name == "bytes":
        return cell(federation, label, metric=name)
    exhibit = _exhibit(setting, name)
    usual = {"fedmoe": f"fedmoe-k{setting.num_experts}"} if name == "table3" else {}
    row = PRINTED_AS.get(name, usual).get(label, label)
    printed = (exhibit, setting.data.dataset, row, "accuracy") if exhibit else None
    return cell(federation, label, printed, **SERVER)


def _exhibit(setting: Setting, name: str) -> str:
    """The published exhibit with the federation's numbers; "" if there is none."""
    if not name or setting.data.dataset not in OF_DATASETS.get(name, SETTINGS):
        return ""
    if name == "table2":
        return f"table2-m{setting.num_clients}"
    if setting.num_clients != ABLATED:
        return ""
    return f"{name}-{setting.reserved}" if name == "reserved" else name


ACCEPTANCE = Acceptance(cases, number, "table2-m50", VALUES)
