"""Hyper-parameters as declared, beside those printed in the paper: an input, not a result."""

import functools
import math

import pandas as pd

from fedlib.errors import ConfigError
from fedlib.report import exhibits
from fedlib.report.tables.render import ABSENT, Block, Cell, Column, Sheet
from fedlib.report.tables.sheets import TableInputs, is_compared

ROUNDING = 1e-9  # relative difference between equal numbers read from JSON and from csv


def build(given: TableInputs) -> Sheet:
    """The table, a block per federation and run; one row of numbers per hyper-parameter and column.

    Raises:
      ConfigError: if a run does not state a path, or a path belongs to no column.
    """
    exhibit, kind = given.exhibit, given.kind
    keys = [column["key"] for column in kind.columns]
    for row in kind.rows:
        unknown = sorted(row["paths"].keys() - set(keys))
        if unknown:
            raise ConfigError(f"{row['title']} has a path for {unknown[0]}, which is no column")
    numbers = _numbers(given, kind.columns, kind.rows)
    compared = is_compared(numbers)
    return given.sheet(
        numbers,
        _blocks(exhibit, numbers, kind.columns),
        "Values as these runs were declared: an input, not a result. "
        f"{ABSENT}: there is no such setting, or none is published.",
        "Bold: other than published." if compared else "",
        "" if compared or given.published is None else "The paper prints none for these data.",
    )


def _numbers(given: TableInputs, columns: list[dict], rows: list[dict]) -> pd.DataFrame:
    """One row per federation, run, hyper-parameter and column."""
    datasets = {data["name"]: data["dataset"] for data in given.exhibit["federations"]}
    table = []
    for run in given.exhibit["runs"]:
        dataset = datasets[run["federation"]]
        for row in rows:
            found = given.printed(row["key"])
            for column in columns:
                path, key = row["paths"].get(column["key"]), column["key"]
                table.append(
                    {
                        "federation": run["federation"],
                        "dataset": dataset,
                        "label": run["label"],
                        "run": run["title"],
                        "parameter": row["key"],
                        "title": row["title"],
                        "column": key,
                        "path": path or "",
                        "published": found.get((dataset, key), math.nan),
                        "value": None if path is None else _value(run, path),
                    }
                )
    return pd.DataFrame(table)


def _value(run: dict, path: str) -> object:
    try:
        return functools.reduce(lambda inner, key: inner[key], path.split("."), run)
    except (KeyError, TypeError):
        raise ConfigError(f"run {exhibits.name(run)} does not state {path}") from None


def _blocks(exhibit: dict, numbers: pd.DataFrame, columns: list[dict]) -> list[Block]:
    titles = {federation["name"]: federation["title"] for federation in exhibit["federations"]}
    several = len(exhibits.titles(exhibit)) > 1
    blocks = []
    for (federation, _), part in numbers.groupby(["federation", "label"], sort=False):
        heading = titles[federation] + (f": {part['run'].iloc[0]}" if several else "")
        compared = part["published"].notna().any()
        names = ("published", "here") if compared else ("",)
        heads = [
            Column(name or column["title"], column["title"] if compared else "")
            for column in columns
            for name in names
        ]
        rows = [
            [Cell(row["title"].iloc[0]), *_cells(row.to_dict("records"), compared)]
            for _, row in part.groupby("parameter", sort=False)
        ]
        blocks.append(Block(heading, [Column("Hyper-parameter"), *heads], rows))
    return blocks


def _cells(settings: list[dict], compared: bool) -> list[Cell]:
    """Per column the published setting if `compared`, and the declared one; bold if they differ."""
    cells = []
    for one in settings:
        published, value, stated = one["published"], one["value"], bool(one["path"])
        known = not math.isnan(published)
        same = _is_number(value) and math.isclose(value, published, rel_tol=ROUNDING)
        if compared:
            cells.append(Cell(_text(published) if known else ABSENT))
        cells.append(Cell(_text(value) if stated else ABSENT, stated and known and not same))
    return cells


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object) -> str:
    return exhibits.setting_text(value) if _is_number(value) else str(value)
