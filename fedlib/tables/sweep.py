"""Accuracy against one hyper-parameter, such as the number of experts."""

import numpy as np
import pandas as pd

from fedlib import exhibit as exhibits
from fedlib.exhibit import METRIC_TITLES
from fedlib.metrics import PRIMARY, over_seeds
from fedlib.tables import notes
from fedlib.tables.render import Block, Cell, Column, Sheet, best_cells, percent

STATISTICS = ("mean", "std", "ci95")


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    parameter: str,
    methods: list[str],
    symbol: str | None = None,
) -> Sheet:
    """The table; its numbers have one row per federation, method, value and metric.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibit`, `fedlib.metrics`,
        `fedlib.published`.
      parameter: the hyper-parameter, a key of the runs' `params`.
      methods: registry names, in column order.
      symbol: how the paper calls the parameter ("M"); its own name if not given.

    Raises:
      ConfigError: if a run of these methods does not state the parameter, or two runs of a method
        and federation have the same value.
    """
    numbers = _numbers(exhibit, exhibits.select(exhibit, metrics), parameter, methods)
    blocks = [
        _block(f"{title}, last round", symbol or parameter, exhibit, methods, part)
        for metric, title in METRIC_TITLES.items()
        for part in [exhibits.pick(numbers, metric=metric)]
    ]
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=blocks,
        notes=[
            *notes.measured(exhibit),
            notes.ALL_AND_BOTTOM,
            "Bold: highest of the column. The csv file also has the best round, which is a "
            "selection on the test set.",
            *notes.particulars(exhibit),
        ],
        numbers=numbers,
    )


def _numbers(
    exhibit: dict, metrics: pd.DataFrame, parameter: str, methods: list[str]
) -> pd.DataFrame:
    shown = exhibits.pick(metrics, **PRIMARY._asdict())
    shown = shown[shown["metric"].isin(METRIC_TITLES) & shown["at"].isin(["last", "best"])]
    summary = over_seeds(shown, ["federation", "label", "metric", "at"])
    last, best = (exhibits.pick(summary, at=at).drop(columns="at") for at in ("last", "best"))
    keys = ["federation", "label", "metric"]
    both = last[[*keys, *STATISTICS, "seeds"]].merge(
        best[[*keys, *STATISTICS]].rename(columns={name: f"best_{name}" for name in STATISTICS}),
        on=keys,
    )
    runs = exhibits.swept(exhibit, parameter, methods).assign(parameter=parameter)
    table = runs.merge(both, on=keys[:2]).sort_values(
        ["federation", "method", "metric", "setting"], kind="stable", ignore_index=True
    )
    return notes.with_scale(exhibit, table)


def _block(
    heading: str, symbol: str, exhibit: dict, methods: list[str], numbers: pd.DataFrame
) -> Block:
    settings = sorted(numbers["setting"].unique())
    columns = [Column(symbol)]
    cells = [[Cell(exhibits.setting_text(setting)) for setting in settings]]
    for federation in exhibit["federations"]:
        for method in methods:
            mine = exhibits.pick(numbers, federation=federation["name"], method=method)
            if mine.empty:
                continue
            found = mine.set_index("setting")[["mean", "ci95"]].reindex(settings)
            means = found["mean"].astype(np.float64)
            columns.append(Column(exhibits.method_title(method), federation["title"]))
            cells.append(best_cells(means.tolist(), list(map(percent, means, found["ci95"]))))
    return Block(heading, columns, [list(row) for row in zip(*cells, strict=True)])
