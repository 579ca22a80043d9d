"""Accuracy against one parameter, such as the number of experts or how unlike clients are.

A parameter of the runs is a choice: its values are rows, and the best value of each method is bold.
A parameter of the federations is given: its values are columns, and the best method at each is.
"""

import numpy as np
import pandas as pd

from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.metrics import PRIMARY, over_seeds
from fedlib.exhibits.selection import METRIC_TITLES
from fedlib.tables import notes
from fedlib.tables.render import Block, Cell, Column, Sheet, best_cells, percents
from fedlib.tables.summary import STATISTICS


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    parameter: str,
    methods: list[str],
    symbol: str | None = None,
    of: str = "run",
) -> Sheet:
    """The table; its numbers have one row per federation, method, value and metric.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.
      parameter, of: what is varied, and whether of a "run" or a "federation"; see
        `fedlib.exhibits.selection.swept`.
      methods: registry names, in the order of columns or rows.
      symbol: how the paper calls the parameter ("M"); its own name if not given.

    Raises:
      ConfigError: see `fedlib.exhibits.selection.swept`.
    """
    runs = exhibits.swept(exhibit, parameter, methods, of).assign(parameter=parameter)
    numbers = _numbers(exhibit, runs, exhibits.select(exhibit, metrics))
    names = {method: exhibits.method_title(method, exhibit["runs"]) for method in methods}
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=_blocks(exhibits.panels(exhibit, of), numbers, symbol or parameter, names, of),
        notes=[
            *notes.measured(exhibit),
            notes.ALL_AND_BOTTOM,
            "Bold: highest of the column. The csv file also has the best round, which is a "
            "selection on the test set.",
            *filter(None, [exhibits.parameter_note(parameter, symbol or "")]),
            *notes.particulars(exhibit),
        ],
        numbers=numbers.drop(columns="panel"),
    )


def _numbers(exhibit: dict, runs: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """The runs with their accuracy at the last and best round -> one row per run and metric."""
    shown = exhibits.pick(metrics, **PRIMARY._asdict())
    shown = shown[shown["metric"].isin(METRIC_TITLES) & shown["at"].isin(["last", "best"])]
    summary = over_seeds(shown, ["federation", "label", "metric", "at"])
    last, best = (exhibits.pick(summary, at=at).drop(columns="at") for at in ("last", "best"))
    keys = ["federation", "label", "metric"]
    both = last[[*keys, *STATISTICS, "seeds"]].merge(
        best[[*keys, *STATISTICS]].rename(columns={name: f"best_{name}" for name in STATISTICS}),
        on=keys,
    )
    table = runs.merge(both, on=keys[:2]).sort_values(
        ["federation", "method", "metric", "setting"], kind="stable", ignore_index=True
    )
    return notes.with_scale(exhibit, table)


def _blocks(
    panels: list[str], numbers: pd.DataFrame, symbol: str, methods: dict[str, str], of: str
) -> list[Block]:
    """One per metric; where federations are varied, one per panel and metric."""
    if of == "federation":
        return [
            _by_method(f"{panel}: {title}", symbol, methods, part)
            for panel in panels
            for metric, title in METRIC_TITLES.items()
            for part in [exhibits.pick(numbers, panel=panel, metric=metric)]
            if len(part)
        ]
    return [
        _by_setting(title, symbol, panels, methods, exhibits.pick(numbers, metric=metric))
        for metric, title in METRIC_TITLES.items()
    ]


def _by_setting(
    title: str, symbol: str, panels: list[str], methods: dict[str, str], numbers: pd.DataFrame
) -> Block:
    """A row per value; a column per panel and method."""
    settings = _settings(numbers)
    columns = [Column(symbol)]
    cells = [[Cell(exhibits.setting_text(setting)) for setting in settings]]
    for panel in panels:
        for method, name in methods.items():
            mine = exhibits.pick(numbers, panel=panel, method=method)
            if len(mine):
                columns.append(Column(name, panel))
                cells.append(_cells(mine, "setting", settings))
    return Block(f"{title}, last round", columns, _rows(cells))


def _by_method(title: str, symbol: str, methods: dict[str, str], numbers: pd.DataFrame) -> Block:
    """A row per method; a column per value."""
    present = [method for method in methods if (numbers["method"] == method).any()]
    columns = [Column("Method")]
    cells = [[Cell(methods[method]) for method in present]]
    for setting in _settings(numbers):
        columns.append(Column(exhibits.setting_text(setting), symbol))
        cells.append(_cells(exhibits.pick(numbers, setting=setting), "method", present))
    return Block(f"{title}, last round", columns, _rows(cells))


def _settings(numbers: pd.DataFrame) -> list:
    return sorted(numbers["setting"].unique())


def _cells(numbers: pd.DataFrame, by: str, order: list) -> list[Cell]:
    """A column of cells, one for each value of `by`; a dash where nothing ran."""
    found = numbers.set_index(by)[["seeds", *STATISTICS]].reindex(order).astype(np.float64)
    return best_cells(found["mean"].tolist(), percents(found))


def _rows(columns: list[list[Cell]]) -> list[list[Cell]]:
    return [list(row) for row in zip(*columns, strict=True)]
