"""Accuracy of several views of the same trainings: which clients, prepared how, on which examples.

Such as clients that trained, a new client with labels and a new shard without any. The table
`protocol_grid` has several protocols of one group of clients on their test examples.
"""

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from fedlib.errors import ConfigError, DataError
from fedlib.exhibits import comparisons as ways
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.metrics import PRIMARY, over_seeds
from fedlib.exhibits.published import off
from fedlib.results import SHARED
from fedlib.tables import notes
from fedlib.tables.render import Block, Cell, Column, Sheet, best_cells, percent, percents, points
from fedlib.tables.summary import STATISTICS, identity, statistics

SPLITS = {"train": "training", "val": "validation", "test": "test", SHARED: "shared test"}


class _Shown(NamedTuple):
    """A column: its title, whose accuracy it has, and the `key` of its published numbers."""

    title: str
    group: str = PRIMARY.group
    protocol: str = PRIMARY.protocol
    split: str = PRIMARY.split
    metric: str = "accuracy_client_mean"
    key: str = ""

    def view(self) -> tuple[str, str, str, str]:
        return (self.group, self.protocol, self.split, self.metric)


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    columns: list[dict],
) -> Sheet:
    """The table, after the last round; its numbers have one row per federation, run and column.

    What is published is found by the exhibit's `published`, a pattern as of
    `fedlib.exhibits.comparisons.Printed`, under the column's key and metric.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.
      columns: of each the "title", and whatever is not as here: "group" "seen", "protocol"
        "default", "split" "test", "metric" "accuracy_client_mean" (or "accuracy"), "key" of
        published numbers, the protocol.

    Raises:
      ConfigError: if a column has other fields or values, or its title is taken.
      DataError: if no run has anything of what the columns show.
    """
    shown = _declared(columns)
    numbers = _numbers(exhibit, metrics, shown, ways.Printed(published, exhibit["published"]))
    compared = bool(numbers["published"].notna().any())
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=[_block(federation, numbers, shown) for federation in exhibit["federations"]],
        notes=[
            *notes.measured(exhibit),
            "After the last round. A dash: the run was not evaluated so. Bold: highest of the "
            "column.",
            *_absent(numbers, shown),
            *(f"{column.title}: {_meaning(column)}." for column in shown),
            *(
                ["Difference: reproduced minus published, in percentage points."]
                if compared
                else []
            ),
            *exhibits.published_note(exhibit, shown=compared),
            *notes.particulars(exhibit),
        ],
        numbers=numbers,
    )


def _absent(numbers: pd.DataFrame, shown: list[_Shown]) -> list[str]:
    """Which columns are left out, as none of the runs has them: a sentence, or none."""
    known = numbers.groupby("column", sort=False)["mean"].count()
    absent = [column.title for column in shown if not known[column.title]]
    return [f"Not shown, as no run here was evaluated so: {'; '.join(absent)}."] if absent else []


def _declared(columns: list[dict]) -> list[_Shown]:
    found = []
    for column in columns:
        if not isinstance(column, Mapping) or not {"title"} <= column.keys() <= {*_Shown._fields}:
            raise ConfigError(
                f"a column has a title, maybe {', '.join(_Shown._fields[1:])}, got {column!r}"
            )
        shown = _Shown(**column)
        for name, values in (
            ("group", ways.GROUPS),
            ("split", SPLITS),
            ("metric", ways.METRICS),
        ):
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


def _numbers(
    exhibit: dict, metrics: pd.DataFrame, shown: list[_Shown], printed: ways.Printed
) -> pd.DataFrame:
    """Everything the table shows, as fractions -> one row per federation, run and column."""
    last = exhibits.pick(exhibits.select(exhibit, metrics), at="last")
    key = ["federation", "label", "group", "protocol", "split", "metric"]
    found = over_seeds(last, key).set_index(key)
    there = {index[2:] for index in found.index}
    if there.isdisjoint(column.view() for column in shown):
        raise DataError(
            f"no run of {exhibit['name']} was evaluated as the column {shown[0].title!r} says: "
            f"{'/'.join(shown[0].view())}"
        )
    rows = []
    for federation in exhibit["federations"]:
        for run in exhibits.runs_of(exhibit, federation["name"]):
            for column in shown:
                where = (federation["name"], run["label"], *column.view())
                ours = statistics(found, where)
                number = printed.value(federation, run["label"], column.key, column.metric)
                rows.append(
                    {
                        **identity(federation, run),
                        **{"column" if k == "title" else k: v for k, v in column._asdict().items()},
                        "published": number,
                        **{name: ours[name] for name in STATISTICS},
                        "difference": off(ours["mean"], number),
                        "seeds": len(exhibit["seeds"]),
                    }
                )
    return notes.with_scale(exhibit, pd.DataFrame(rows))


def _block(federation: dict, numbers: pd.DataFrame, shown: list[_Shown]) -> Block:
    """A row per run; published and difference only in columns of which something is published."""
    mine = exhibits.pick(numbers, federation=federation["name"])
    heads, cells = [Column("Method")], [list(map(Cell, mine.drop_duplicates("label")["title"]))]
    for column in shown:
        part = exhibits.pick(mine, column=column.title)
        ours = best_cells(part["mean"].tolist(), percents(part))
        if part["published"].isna().all():
            heads.append(Column(column.title))
            cells.append(ours)
            continue
        theirs = [percent(value, decimals=2) for value in part["published"]]
        names = ("published", "reproduced", "difference")
        heads += [Column(name, column.title) for name in names]
        cells += [best_cells(part["published"].tolist(), theirs, 2), ours]
        cells.append([Cell(points(value)) for value in part["difference"]])
    heads.append(Column("Seeds"))
    cells.append([Cell(str(seeds)) for seeds in mine.drop_duplicates("label")["seeds"]])
    return Block(federation["title"], heads, [list(row) for row in zip(*cells, strict=True)])


def _meaning(column: _Shown) -> str:
    """What a column shows, in words."""
    text = f"{ways.METRICS[column.metric]}, {SPLITS[column.split]} examples of the "
    text += ways.GROUPS[column.group]
    if column.protocol == PRIMARY.protocol:
        return text
    return f"{text}, protocol {column.protocol.replace('_', ' ')}"
