"""Rows, columns, pairs and rounds of Fed-MoE's tables and figures at a scale."""

from collections.abc import Callable, Mapping, Sequence

from fedlib.papers._frame import everything
from fedlib.papers.fedmoe.criteria import skew_pairs
from fedlib.papers.fedmoe.settings import ABLATED, EXPERTS, FEWER, Setting

Shown = Sequence[Setting]
SKEW_METRICS = {  # of Figure 4: titles and published names
    "accuracy": ("Accuracy", "accuracy"),
    "macro_f1": ("F1", "f1"),
    "auc": ("AUC", "auc"),
}
SHOWN_ROUNDS = 4  # matrices in a row


def columns(printed_at: int | None = None) -> Callable[[Shown], list[dict]]:
    """A column for each federation; published numbers are for `printed_at` clients.

    None means the number of clients of the column.
    """
    return lambda shown: [
        {"federation": s.data.name, "title": s.column, **_elsewhere(s, printed_at)} for s in shown
    ]


def _elsewhere(setting: Setting, printed_at: int | None) -> dict[str, str]:
    """{"of": the published setting} if published numbers are for another number of clients."""
    return {} if printed_at in (None, setting.num_clients) else {"of": f"M = {printed_at}"}


def of_table_2(shown: Shown) -> list[dict]:
    """A column for each federation, with published numbers for the same number of clients."""
    return [
        {"federation": s.data.name, "title": s.column, "published": f"table2-m{s.num_clients}"}
        for s in shown
    ]


def rows(titles: Mapping[str, str], printed: Mapping[str, str]) -> Callable[[Shown], list[dict]]:
    """A row for each label that is run; `printed` has published labels that differ."""
    return lambda shown: [
        {"label": label, "title": title, "printed": printed.get(label, label)}
        for label, title in titles.items()
        if label in everything(shown)
    ]


def of_table_3(shown: Shown) -> list[dict]:
    """Rows of Avg-MoE, then of Fed-MoE, by number of experts."""
    usual = shown[0].num_experts
    numbers = sorted({usual, 6, *FEWER, *EXPERTS})
    found = [{"label": f"avg-moe-k{x}", "title": f"Avg-MoE, {x} experts"} for x in numbers]
    for number in numbers:
        printed = f"fedmoe-k{number}"
        label = "fedmoe" if number == usual else printed
        title = f"Fed-MoE, {number} experts"
        found.append({"label": label, "title": title, "printed": printed})
    return [row for row in found if row["label"] in everything(shown)]


def by_reserved(shown: Shown) -> list[dict]:
    """A column for each size of the reserved set, by data set."""
    return [
        {
            "federation": setting.data.name,
            "title": f"{setting.reserved} examples",
            "published": f"reserved-{setting.reserved}",
            **_elsewhere(setting, ABLATED),
        }
        for setting in sorted(shown, key=lambda s: (s.data.family, s.reserved))
    ]


def skewed_and_even(settings: Shown) -> list[Setting]:
    """Pairs of federations: one with skewed reserved data, one with even ones."""
    return [setting for pair in skew_pairs(settings) for setting in pair]


def of_skewed(shown: Shown) -> list[str]:
    """Labels of the federations with skewed reserved data."""
    return [label for skewed, _ in skew_pairs(shown) for label in skewed.labels]


def of_figure_4(shown: Shown) -> list[dict]:
    """For each metric, a column for the skewed set, and one for the gain with an even set."""
    found = []
    for skewed, even in skew_pairs(shown):
        for metric, (title, theirs) in SKEW_METRICS.items():
            of = {"metric": metric, "printed": theirs, **_elsewhere(skewed, ABLATED)}
            name = skewed.data.name
            gain = {"federation": even.data.name, "minus": name, "title": f"{title}, gain if even"}
            found += [
                {"federation": name, "title": title, "published": "figure4-skewed", **of},
                {**gain, "published": "figure4-gain", **of},
            ]
    return found


def pairs(shown: Shown) -> list[dict]:
    """Names of the federations that bars compare."""
    return [{"below": s.data.name, "above": e.data.name} for s, e in skew_pairs(shown)]


def some_rounds(setting: Setting) -> list[int]:
    """A few of the logged rounds, with the first and the last."""
    logged = setting.logged()
    last = len(logged) - 1
    return [logged[last * i // (SHOWN_ROUNDS - 1)] for i in range(SHOWN_ROUNDS)]


def same_rounds(shown: Shown) -> list[int]:
    """The result of `some_rounds` that all federations have in common."""
    first, *others = map(some_rounds, shown)
    return [number for number in first if all(number in other for other in others)]
