"""Accuracy of several views of the same trainings: which clients, prepared how, on which examples.

Such as clients that trained, a new client with labels and a new shard without any. The table
`protocol_grid` has several protocols of one group of clients on their test examples.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pandas as pd

from fedlib.errors import ConfigError, DataError
from fedlib.report import comparisons, exhibits
from fedlib.report.metrics import PRIMARY
from fedlib.report.printed import off
from fedlib.report.tables import notes, sheets
from fedlib.report.tables.render import Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, beside, texts
from fedlib.results import SHARED

SPLITS = {"train": "training", "val": "validation", "test": "test", SHARED: "shared test"}
KNOWN = {"group": comparisons.GROUPS, "split": SPLITS, "metric": comparisons.METRICS}


class _Column(NamedTuple):
    """A column: its title, whose accuracy it has, and the `key` of its published numbers."""

    title: str
    group: str = PRIMARY.group
    protocol: str = PRIMARY.protocol
    split: str = PRIMARY.split
    metric: str = "accuracy_client_mean"
    key: str = ""

    def view(self) -> tuple[str, str, str, str]:
        return (self.group, self.protocol, self.split, self.metric)


def build(given: TableInputs) -> Sheet:
    """The table, after the last round; its numbers have one row per federation, run and column.

    What is published is found by the exhibit's `published`, a pattern as of
    `fedlib.report.comparisons.Printed`, under the column's key and metric.

    Raises:
      ConfigError: if a column has other fields or values, or its title is taken.
      DataError: if no run has anything of what the columns show.
    """
    exhibit, shown = given.exhibit, _declared(given.kind.columns)
    printed = comparisons.Printed(given.published, exhibit["published"])
    found = _found(given, shown)

    def of_run(federation: dict, run: dict) -> Iterator[dict]:
        for column in shown:
            ours = sheets.statistics(found, (federation["name"], run["label"], *column.view()))
            number = printed.value(federation, run["label"], column.key, column.metric)
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


def _found(given: TableInputs, shown: list[_Column]) -> pd.DataFrame:
    """Statistics of every run and view, indexed by federation, label and `_Column.view`.

    Raises:
      DataError: if no run has anything of what the columns show.
    """
    view = ("group", "protocol", "split", "metric")
    found = given.over_seeds("federation", "label", *view, at="last")
    if {index[2:] for index in found.index}.isdisjoint(column.view() for column in shown):
        raise DataError(
            f"no run of {given.exhibit['name']} was evaluated as the column {shown[0].title!r} "
            f"says: {'/'.join(shown[0].view())}"
        )
    return found


def _absent(numbers: pd.DataFrame, shown: list[_Column]) -> list[str]:
    """Which columns are left out, as none of the runs has them: a sentence, or none."""
    known = numbers.groupby("column", sort=False)["mean"].count()
    absent = [column.title for column in shown if not known[column.title]]
    return [f"Not shown, as no run here was evaluated so: {'; '.join(absent)}."] if absent else []


def _declared(columns: list[dict]) -> list[_Column]:
    found = []
    for column in columns:
        if not isinstance(column, Mapping) or not {"title"} <= column.keys() <= {*_Column._fields}:
            raise ConfigError(
                f"a column has a title, maybe {', '.join(_Column._fields[1:])}, got {column!r}"
            )
        shown = _Column(**column)
        for name, values in KNOWN.items():
            if getattr(shown, name) not in values:
                raise ConfigError(
                    f"{name} of the column {shown.title!r} must be {' or '.join(values)}, got "
                    f"{getattr(shown, name)!r}"
                )
        found.append(shown._replace(key=shown.key or shown.protocol))
    titles = [column.title for column in found]
    if not titles or len(set(titles)) < len(titles):
        raise ConfigError(
            f"columns must have different titles, got {', '.join(titles) or 'no columns'}"
        )
    return found


def _meaning(column: _Column) -> str:
    """What a column shows, in words."""
    text = f"{comparisons.METRICS[column.metric]}, {SPLITS[column.split]} examples of the "
    text += comparisons.GROUPS[column.group]
    if column.protocol == PRIMARY.protocol:
        return text
    return f"{text}, protocol {column.protocol.replace('_', ' ')}"
