"""Accuracy of several views of the same trainings: a view is clients, preparation and examples.

Examples are clients that trained, a new client with labels, and a new shard without labels. The
table `protocol_grid` has several protocols of one group of clients on their test examples.
"""

from collections.abc import Iterator

import pandas as pd

from fedlib.errors import DataError
from fedlib.report import comparisons, exhibits
from fedlib.report.metrics import PRIMARY
from fedlib.report.printed import off
from fedlib.report.tables import notes, sheets
from fedlib.report.tables.render import Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, beside, texts
from fedlib.results import SHARED
from fedlib.spec.tables import ViewColumn

SPLITS = {"train": "training", "val": "validation", "test": "test", SHARED: "shared test"}


def build(given: TableInputs) -> Sheet:
    """The table, after the last round; its numbers have one row per federation, run and column.

    The exhibit's `published` is a pattern, see `fedlib.report.comparisons.published`; the
    numbers are under the column's key and metric.

    Raises:
      DataError: if no run has any of the columns.
    """
    exhibit, shown = given.exhibit, given.kind.formed("columns")
    shown = [column._replace(key=column.key or column.protocol) for column in shown]
    found = _found(given, shown)

    def of_run(federation: dict, run: dict) -> Iterator[dict]:
        for column in shown:
            ours = sheets.statistics(found, (federation["name"], run["label"], *column[1:5]))
            where = column.key, column.metric
            number = comparisons.published(given, federation, run["label"], *where)
            yield {
                **{"column" if k == "title" else k: v for k, v in column._asdict().items()},
                "published": number,
                **ours,
                "difference": off(ours["mean"], number),
                "seeds": len(exhibit["seeds"]),
            }

    def of_block(mine: pd.DataFrame) -> Columns:
        runs = mine.drop_duplicates("label")
        yield Column("Method"), texts(runs["title"])
        for column in shown:
            yield from beside(column.title, exhibits.pick(mine, column=column.title))
        yield Column("Seeds"), texts(runs["seeds"])

    numbers = given.numbers(of_run)
    compared = sheets.is_compared(numbers)
    return given.sheet(
        numbers,
        given.blocks(numbers, of_block),
        notes.measured(exhibit),
        f"After the last round. A dash: the run was not evaluated so. {sheets.HIGHEST}",
        *_absent(numbers, shown),
        *(f"{column.title}: {_meaning(column)}." for column in shown),
        sheets.DIFFERENCE if compared else "",
        *exhibits.published_note(exhibit, shown=compared),
    )


def _found(given: TableInputs, shown: list[ViewColumn]) -> pd.DataFrame:
    """Statistics of every run and view, indexed by federation, label, view and metric.

    Raises:
      DataError: if no run has any of the columns.
    """
    view = ("group", "protocol", "split", "metric")
    found = given.over_seeds("federation", "label", *view, at="last")
    if {index[2:] for index in found.index}.isdisjoint(column[1:5] for column in shown):
        raise DataError(
            f"no run of {given.exhibit['name']} was evaluated as the column {shown[0].title!r} "
            f"says: {'/'.join(shown[0][1:5])}"
        )
    return found


def _absent(numbers: pd.DataFrame, shown: list[ViewColumn]) -> list[str]:
    """A sentence about columns left out because no run has them, or none."""
    known = numbers.groupby("column", sort=False)["mean"].count()
    absent = [column.title for column in shown if not known[column.title]]
    return [f"Not shown, as no run here was evaluated so: {'; '.join(absent)}."] if absent else []


def _meaning(column: ViewColumn) -> str:
    """A column's meaning in words."""
    text = f"{comparisons.METRICS[column.metric]}, {SPLITS[column.split]} examples of the "
    text += comparisons.GROUPS[column.group]
    if column.protocol == PRIMARY.protocol:
        return text
    return f"{text}, protocol {column.protocol.replace('_', ' ')}"
