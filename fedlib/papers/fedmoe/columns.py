"""Rows, columns and rounds of Fed-MoE's tables and figures at a scale."""

import json
from collections.abc import Callable, Mapping, Sequence

from fedlib.papers._frame import everything, on
from fedlib.papers.fedmoe.settings import ABLATED, EXPERTS, FEWER, KEPT, OURS, PRINTED, Setting

Shown = Sequence[Setting]
SKEW_METRICS = {  # of Figure 4: titles and published names
    "accuracy": ("Accuracy", "accuracy"),
    "macro_f1": ("F1", "f1"),
    "auc": ("AUC", "auc"),
}
CUT_FIRST = ("server_equal", "server_majority")  # partitions of `fedlib.data.reserved`
OF_CLIENTS = ("num_clients", "train_examples", "alpha", "share", "share_to", "rest")
SHOWN_ROUNDS = 4  # matrices in a row


def by_clients(
    printed_at: int | None = None, **fields: Callable[[Setting], str]
) -> Callable[[Shown], list[dict]]:
    """A column for each federation.

    Args:
      printed_at: number of clients that published numbers are for; None for the column's.
      fields: of a column, in place of its usual title.
    """
    return lambda shown: [
        {
            **{"federation": s.data.name, "title": f"M = {s.num_clients}"},
            **{name: of(s) for name, of in fields.items()},
            **_elsewhere(s, printed_at),
        }
        for s in shown
    ]


def _elsewhere(setting: Setting, printed_at: int | None) -> dict[str, str]:
    """{"of": the published setting} if published numbers are for another number of clients."""
    return {} if printed_at in (None, setting.num_clients) else {"of": f"M = {printed_at}"}


def by_reserved(shown: Shown) -> list[dict]:
    """A column for each size of the reserved set, by data set."""
    of = by_clients(
        ABLATED,
        title=lambda s: f"{s.reserved} examples",
        published=lambda s: f"reserved-{s.reserved}",
    )
    return of(sorted(shown, key=lambda s: (s.data.family, s.reserved)))


def rows(titles: Mapping[str, str], printed: Mapping[str, str]) -> Callable[[Shown], list[dict]]:
    """A row for each label that is run; `printed` has published labels that differ."""
    return lambda shown: [
        {"label": label, "title": title, "printed": printed.get(label, label)}
        for label, title in titles.items()
        if label in everything(shown)
    ]


def of_table_2(shown: Shown) -> list[dict]:
    """A row for each method; that of CentMoE also where it would be trained on the same data."""
    trained = {_of_server(s): s.data.name for s in shown if "centmoe" in s.labels}
    others = [s for s in shown if "centmoe" not in s.labels and _of_server(s) in trained]
    elsewhere = {s.data.name: trained[_of_server(s)] for s in others}
    return [
        {"label": x} | ({"elsewhere": elsewhere} if x == "centmoe" and elsewhere else {})
        for x in (*PRINTED, *OURS)
        if x in everything(shown)
    ]


def _of_server(setting: Setting) -> str:
    """What training on the server's data depends on, but for the order of batches.

    That is the whole partition, unless the server's rows are cut before the clients'.
    """
    partition = setting.data.partition
    if partition["kind"] in CUT_FIRST:
        partition = {name: x for name, x in partition.items() if name not in OF_CLIENTS}
    about = [setting.data.dataset, setting.data.params, partition, setting.num_rounds]
    return json.dumps(about, sort_keys=True)


def of_table_3(shown: Shown) -> list[dict]:
    """Rows of Avg-MoE, then of Fed-MoE, by number of experts."""
    usual = shown[0].num_experts
    numbers = sorted({usual, 6, *FEWER, *EXPERTS})
    averaged = [{"label": f"avg-moe-k{x}", "title": f"Avg-MoE, {x} experts"} for x in numbers]
    titles = {f"fedmoe-k{x}": f"Fed-MoE, {x} experts" for x in numbers}
    routed = [
        {"label": "fedmoe" if x == f"fedmoe-k{usual}" else x, "title": title, "printed": x}
        for x, title in titles.items()
    ]
    return [row for row in (*averaged, *routed) if row["label"] in everything(shown)]


def of_table_6(shown: Shown) -> list[dict]:
    """A row for each number of experts that inference keeps, all of one training."""
    kept = {num for setting in shown for num in setting.also_top()}
    return [{"label": "fedmoe", "title": "1", "printed": "fedmoe-top-1"}] + [
        {"label": "fedmoe", "title": str(num), "printed": label, "protocol": f"top_{num}"}
        for label, num in KEPT.items()
        if num in kept
    ]


def skew_pairs(settings: Shown) -> list[tuple[Setting, Setting]]:
    """Each setting with skewed reserved data, and the one with even data of its data set."""
    evens = {setting.data.dataset: setting for setting in on("even")(settings)}
    return [(setting, evens[setting.data.dataset]) for setting in on("skewed")(settings)]


def settings_of_pairs(settings: Shown) -> list[Setting]:
    """The settings of all pairs."""
    return [setting for pair in skew_pairs(settings) for setting in pair]


def of_figure_4(shown: Shown) -> list[dict]:
    """For each metric, a column for the skewed set, and one for the gain with an even set."""
    found = []
    for skewed, even in skew_pairs(shown):
        for metric, (title, printed) in SKEW_METRICS.items():
            of = {"metric": metric, "printed": printed, **_elsewhere(skewed, ABLATED)}
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


def some_rounds(shown: Shown) -> list[int]:
    """A few of the rounds that are logged in all federations, with the first and the last."""
    few = []
    for logged in (setting.log_rounds() for setting in shown):
        last = len(logged) - 1
        few.append([logged[last * i // (SHOWN_ROUNDS - 1)] for i in range(SHOWN_ROUNDS)])
    return [number for number in few[0] if all(number in other for other in few)]
