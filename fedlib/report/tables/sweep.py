"""Accuracy against one parameter, such as the number of experts or a Dirichlet concentration.

A parameter of the runs is a choice: its values are rows, and the best value of each method is bold.
A parameter of the federations is given: its values are columns, and the best method at each value
is bold.
"""

import numpy as np
import pandas as pd

from fedlib.report import exhibits
from fedlib.report.exhibits import METRIC_TITLES
from fedlib.report.metrics import PRIMARY
from fedlib.report.tables import notes, sheets
from fedlib.report.tables.render import Block, Cell, Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, block, means, texts


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation, method, value and metric.

    Raises:
      ConfigError: see `fedlib.report.exhibits.swept`.
    """
    exhibit, kind = given.exhibit, given.kind
    runs = exhibits.swept(exhibit, kind.parameter, kind.methods, kind.of)
    numbers = _numbers(given, runs.assign(parameter=kind.parameter))
    names = {method: exhibits.method_title(method, exhibit["runs"]) for method in kind.methods}
    return given.sheet(
        numbers.drop(columns="panel"),
        _blocks(given, numbers, names),
        notes.measured(exhibit),
        notes.ALL_AND_BOTTOM,
        f"{sheets.HIGHEST} The csv file also has the best round, which is a selection on the test "
        "set.",
        exhibits.parameter_note(kind.parameter, kind.symbol or ""),
    )


def _numbers(given: TableInputs, runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with their accuracy at the last and best round -> one row per run and metric."""
    keys = ["federation", "label", "metric"]
    found = given.at_moments(*keys, **PRIMARY._asdict())
    best = found["best"][[*sheets.STATISTICS]].add_prefix("best_")
    both = found["last"][[*sheets.STATISTICS, "seeds"]].join(best, how="inner").reset_index()
    shown = both[both["metric"].isin(METRIC_TITLES)]
    return runs.merge(shown, on=keys[:2]).sort_values(
        ["federation", "method", "metric", "setting"], kind="stable", ignore_index=True
    )


def _blocks(given: TableInputs, numbers: pd.DataFrame, methods: dict[str, str]) -> list[Block]:
    """A block per metric; if federations vary, a block per panel and metric."""
    of, symbol = given.kind.of, given.kind.symbol or given.kind.parameter
    panels = exhibits.panels(given.exhibit, of)
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

    def columns() -> Columns:
        yield Column(symbol), texts(map(exhibits.setting_text, settings))
        for panel in panels:
            for method, name in methods.items():
                mine = exhibits.pick(numbers, panel=panel, method=method)
                if len(mine):
                    yield Column(name, panel), _cells(mine, "setting", settings)

    return block(f"{title}, last round", columns())


def _by_method(title: str, symbol: str, methods: dict[str, str], numbers: pd.DataFrame) -> Block:
    """A row per method; a column per value."""
    present = [method for method in methods if (numbers["method"] == method).any()]

    def columns() -> Columns:
        yield Column("Method"), texts(methods[method] for method in present)
        for setting in _settings(numbers):
            mine = exhibits.pick(numbers, setting=setting)
            yield Column(exhibits.setting_text(setting), symbol), _cells(mine, "method", present)

    return block(f"{title}, last round", columns())


def _settings(numbers: pd.DataFrame) -> list:
    return sorted(numbers["setting"].unique())


def _cells(numbers: pd.DataFrame, by: str, order: list) -> list[Cell]:
    """A column of cells, one for each value of `by`; a dash where there is no run."""
    return means(
        numbers.set_index(by)[["seeds", *sheets.STATISTICS]].reindex(order).astype(np.float64)
    )
