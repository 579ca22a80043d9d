"""Accuracy of one model for everybody on the server's test examples: a row per run.

A column is a federation, or by how much one is above another, such as a reserved set with even
classes above a skewed one. What the paper prints of a run under several names, as where a sweep has
a point in common with the main table, stands beside each of them.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError
from fedlib.exhibits import published as printed
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.metrics import SERVER, check_of_server, over_seeds
from fedlib.tables import notes
from fedlib.tables.render import (
    Block,
    Cell,
    Column,
    Sheet,
    best_cells,
    percent,
    percents,
    points,
    with_spread,
)
from fedlib.tables.summary import STATISTICS, identity, statistics

AVERAGE = "Average"
ROUNDED = 1e-4  # how far a printed average may be from that of printed numbers
ALL = "all"  # data set of published averages
MEASURED = (
    "On the test examples of the server, after the last round, with the model that the method then "
    "predicts with. Bold: highest of the column."
)


class _Row(NamedTuple):
    """A run, how the table calls it, and under which label its number is published."""

    label: str
    title: str = ""
    printed: str = ""


class _Shown(NamedTuple):
    """A column: the metric of a federation, `minus` that of another; which are `published`."""

    federation: str
    title: str
    metric: str = "accuracy"
    minus: str = ""
    published: str = ""
    printed: str = ""


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    columns: list[dict],
    rows: list[dict] | None = None,
    head: str = "Method",
    average: str | None = None,
) -> Sheet:
    """The table, a block per family of federations; its numbers have one row per run and column.

    Rows and columns whose runs are not in the exhibit are left out, as only some may be wanted.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.
      columns: of each the "federation" and "title", maybe the "metric" (accuracy), the federation
        to be subtracted ("minus"), the exhibit that is "published", that of the table if it is left
        out, and the metric by which that is "printed", the same if it is left out.
      rows: of each the "label", maybe a "title" (the run's) and the label under which it is
        "printed" (its own); the exhibit's runs if not given.
      head: of the column of titles.
      average: published exhibit of the means over all columns, of the data set "all"; with it, or
        with "", these are shown too.

    Raises:
      ConfigError: for a row or column that is not such.
    """
    shown, wanted = _columns(exhibit, columns), _rows(exhibit, rows)
    found = _reproduced(exhibit, metrics, shown)
    numbers = _numbers(exhibit, published, shown, wanted, found)
    blocks = [_block(family, part, head) for family, part in numbers.groupby("family", sort=False)]
    if average is not None:
        means = _averages(numbers, printed.fractions(published, average), wanted)
        numbers = pd.concat([numbers, means], ignore_index=True)
        blocks.append(_block(AVERAGE, means, head))
    compared = bool(numbers["published"].notna().any())
    difference = "Difference: reproduced minus published, in percentage points."
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=blocks,
        notes=[
            *notes.measured(exhibit),
            MEASURED + (f" {difference}" if compared else ""),
            *exhibits.published_note(exhibit, shown=compared),
            *notes.particulars(exhibit),
        ],
        numbers=notes.with_scale(exhibit, numbers),
    )


def _columns(exhibit: dict, columns: list[dict]) -> list[_Shown]:
    """Those whose federations are in the exhibit."""
    there = {federation["name"] for federation in exhibit["federations"]}
    found = []
    for column in columns:
        if not {"federation", "title"} <= column.keys() <= {*_Shown._fields}:
            raise ConfigError(
                "a column has a federation and a title, maybe "
                f"{', '.join(_Shown._fields[2:])}, got {column!r}"
            )
        shown = _Shown(**column)
        check_of_server(shown.metric, f"the column {shown.title!r}")
        if {shown.federation, shown.minus or shown.federation} <= there:
            found.append(shown._replace(published=shown.published or exhibit["published"] or ""))
    return found


def _rows(exhibit: dict, rows: list[dict] | None) -> list[_Row]:
    """Those whose runs are in the exhibit, with titles and published labels."""
    titles = exhibits.titles(exhibit)
    found = []
    for row in [{"label": label} for label in titles] if rows is None else rows:
        if not {"label"} <= row.keys() <= {*_Row._fields}:
            raise ConfigError(f"a row has a label, maybe a title and printed, got {row!r}")
        own = _Row(**row)
        if own.label in titles:
            title, known = own.title or titles[own.label], own.printed or own.label
            found.append(own._replace(title=title, printed=known))
    return found


def _reproduced(exhibit: dict, metrics: pd.DataFrame, shown: list[_Shown]) -> pd.DataFrame:
    """`over_seeds` of every run and column, indexed by label and the column's position."""
    view = SERVER._asdict() | {"at": "last"}
    last = exhibits.pick(exhibits.select(exhibit, metrics), **view)
    values = last.set_index(["federation", "metric", "label", "seed"])["value"]
    parts = []
    for place, column in enumerate(shown):
        value = _of(values, column.federation, column.metric)
        if column.minus:
            value = value - _of(values, column.minus, column.metric)
        parts.append(value.dropna().reset_index().assign(column=place))
    key = ["label", "column"]
    return over_seeds(pd.concat(parts, ignore_index=True), key).set_index(key)


def _of(values: pd.Series, federation: str, metric: str) -> pd.Series:
    """Those of one federation and metric, by label and seed."""
    names = values.index.names[:2]
    mine = values[(values.index.get_level_values(0) == federation)
                  & (values.index.get_level_values(1) == metric)]  # fmt: skip
    return mine.droplevel(names)


def _numbers(
    exhibit: dict,
    published: pd.DataFrame | None,
    shown: list[_Shown],
    rows: list[_Row],
    found: pd.DataFrame,
) -> pd.DataFrame:
    """Everything the table shows, as fractions -> one row per column and run."""
    federations = {federation["name"]: federation for federation in exhibit["federations"]}
    numbers = []
    for place, column in enumerate(shown):
        federation = federations[column.federation]
        theirs = printed.fractions(
            published, column.published or None, column.printed or column.metric
        )
        for row in rows:
            ours = statistics(found, (row.label, place))
            number = theirs.get((federation["dataset"], row.printed), np.nan)
            about = {"label": row.label, "title": row.title}
            numbers.append(
                {
                    **identity(federation, about),
                    "family": federation["family"],
                    "column": column.title,
                    "place": place,
                    "metric": column.metric,
                    "minus": column.minus,
                    "published": number,
                    **{name: ours[name] for name in STATISTICS},
                    "difference": printed.off(ours["mean"], number),
                    "seeds": len(exhibit["seeds"]),
                }
            )
    return pd.DataFrame(numbers)


def _averages(
    numbers: pd.DataFrame, theirs: dict[tuple[str, str], float], rows: list[_Row]
) -> pd.DataFrame:
    """The mean of each run over all columns, NaN unless it has all of them.

    A published average is one of the columns that are here, or it is left out.
    """
    found = []
    for row in rows:
        mine = exhibits.pick(numbers, label=row.label, title=row.title)
        mean, number = mine["mean"].mean(skipna=False), theirs.get((ALL, row.printed), np.nan)
        if not abs(mine["published"].mean(skipna=False) - number) <= ROUNDED:
            number = np.nan
        same = {"mean": mean, "low": np.nan, "high": np.nan, "std": np.nan, "ci95": np.nan}
        about = mine.iloc[0].to_dict() | {"federation": ALL, "dataset": ALL, "family": AVERAGE}
        about |= {"column": "All columns", "place": 0, "published": number, **same}
        found.append(about | {"difference": printed.off(mean, number), "seeds": 1})
    return pd.DataFrame(found)


def _block(family: str, numbers: pd.DataFrame, head: str) -> Block:
    """A row per run; published and difference only in columns of which something is published."""
    some = numbers.groupby(["label", "title"])["mean"].transform("count") > 0
    numbers = numbers[some | numbers.groupby(["label", "title"])["published"].transform("any")]
    places = [part for _, part in numbers.groupby("place")]
    heads, cells = [Column(head)], [list(map(Cell, places[0]["title"]))]
    for part in places:
        title, minus = part["column"].iloc[0], bool(part["minus"].iloc[0])
        ours = best_cells(part["mean"].tolist(), _texts(part, minus))
        if part["published"].isna().all():
            heads.append(Column(title))
            cells.append(ours)
            continue
        form = (lambda value: points(value, 2)) if minus else (lambda v: percent(v, decimals=2))
        theirs = best_cells(part["published"].tolist(), [form(v) for v in part["published"]], 2)
        heads += [Column(name, title) for name in ("published", "reproduced", "difference")]
        cells += [theirs, ours, [Cell(points(value)) for value in part["difference"]]]
    return Block(family, heads, [list(row) for row in zip(*cells, strict=True)])


def _texts(numbers: pd.DataFrame, minus: bool) -> list[str]:
    """Means with what so many seeds can say of their spread; gains with a sign."""
    if not minus:
        return percents(numbers)
    rows = numbers[["seeds", *STATISTICS]].to_dict("records")
    return [with_spread(row, "ci95", points) for row in rows]
