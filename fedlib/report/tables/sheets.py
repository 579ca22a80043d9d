"""Shared code of all kinds of tables: rows of numbers by run, blocks of columns by federation.

A kind defines the numbers of a run, and the columns made of them. The rest of a `Sheet` follows
from the exhibit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.typing import SeriesGroupBy

from fedlib.report import exhibits, notes
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.seeds import over_seeds
from fedlib.report.tables import render
from fedlib.report.tables.render import Block, Cell, Column, Sheet
from fedlib.spec import Data, Run

Columns = Iterable[tuple[Column, list[Cell]]]  # heads, each with the cells below it
RUN = ("federation", "dataset", "label", "title")  # see `identity`
STATISTICS = ("mean", "std", "ci95", "low", "high")
NARROW = 5  # columns of a table that has room for settings that are the same in all rows
SETTINGS = {"Clients", "Experts", "Rounds", "Seeds", "Trials", "federations"}  # heads of columns
HIGHEST = "Bold: highest of the column."
DIFFERENCE = "Difference: reproduced minus published, in percentage points."


class TableInputs(Inputs):
    """The inputs of a table, and the common steps of making one."""

    stage = "table"

    def make(self) -> Sheet:
        """The table."""
        return self.function("build")(self)

    def over_seeds(self, *key: str, **where: str) -> pd.DataFrame:
        """`seeds.over_seeds` of the rows that match `where`, indexed by `key`."""
        return over_seeds(exhibits.pick(self.rows, **where), [*key]).set_index([*key])

    def numbers(self, of_run: Callable[[Data, Run], Iterable[dict]]) -> pd.DataFrame:
        """A row for each dict of `of_run(federation, run)`, with the columns of `identity`."""
        return pd.DataFrame(
            identity(federation, run) | row
            for federation, run in self.runs
            for row in of_run(federation, run)
        )

    def blocks(
        self, numbers: pd.DataFrame, columns: Callable[[pd.DataFrame], Columns]
    ) -> list[Block]:
        """A block for each federation, with the `columns` made of its numbers."""
        return [
            block(f.title, columns(exhibits.pick(numbers, federation=f.name)))
            for f in self.exhibit.federations
        ]

    def sheet(self, numbers: pd.DataFrame, blocks: list[Block], *said: str) -> Sheet:
        """The sheet with its notes: the scale, `said` without "", and particulars."""
        about = self.exhibit
        scale = notes.scale(about.scale, about.scale_note, about.folder_note)
        blocks, same = without_constants(blocks)
        return Sheet(
            label=f"{about.paper}-{about.name}",
            title=about.title,
            caption=about.caption,
            blocks=blocks,
            notes=notes.of_table(about, *said, same),
            numbers=numbers.assign(scale=about.scale, scale_note=scale),
        )


def block(heading: str, columns: Columns, num_keys: int = 1) -> Block:
    """A block of columns; the first `num_keys` are text."""
    heads, cells = zip(*columns, strict=True)
    return Block(heading, [*heads], [list(row) for row in zip(*cells, strict=True)], num_keys)


def without_constants(blocks: list[Block]) -> tuple[list[Block], str]:
    """The blocks of a wide table without `SETTINGS` that are the same in all rows, and their note.

    The note is "" if there is none.
    """
    widest = max((len(block.drop_empty().columns) for block in blocks), default=0)
    if widest <= NARROW or sum(len(block.rows) for block in blocks) < 2:
        return blocks, ""
    said: dict[Column, set[str]] = {}
    for one in blocks:
        for number, column in enumerate(one.columns[one.num_keys :], one.num_keys):
            if {column.title, column.group} & SETTINGS:
                said.setdefault(column, set()).update(row[number].text for row in one.rows)
    same = {column: min(found) for column, found in said.items() if len(found) == 1}
    kept = [one.only([column not in same for column in one.columns]) for one in blocks]
    alike = ", ".join(
        f"{column.whole} {text}" for column, text in same.items() if text != render.ABSENT
    )
    return kept, f"In all rows: {alike}." if alike else ""


def texts(values: Iterable[object], form: str = "") -> list[Cell]:
    """Cells with the values as text: numbers in a form such as ".3g" are a dash if missing."""
    return [Cell(render.ABSENT if form and pd.isna(x) else f"{x:{form}}") for x in values]


def means(part: pd.DataFrame) -> list[Cell]:
    """Means over seeds in percent, with their spread; the highest is bold."""
    return render.best_cells(part["mean"].tolist(), render.with_spreads(part))


def beside(
    title: str,
    published: list[Cell],
    ours: Mapping[str, list[Cell]],
    difference: list[Cell] | None = None,
    *,
    compared: bool,
    of: str = "",
    spread: str = "ci95",
) -> Iterator[tuple[Column, list[Cell]]]:
    """Published numbers, ours and their difference below a title; only ours if not `compared`.

    Args:
      ours: by their heads; a single one needs none if nothing is published.
      of: title of the published setting, if it is another one.
      spread: of our numbers, see `Column`; that of published ones is a deviation.
    """
    shown = dict(ours)
    if compared:
        shown = {f"published, {of}" if of else "published": published} | shown
        shown |= {"difference": difference} if difference else {}
    for head, cells in shown.items():
        name = [head, title] if len(shown) > 1 else [title]
        yield Column(*name, spread="std" if cells is published else spread), cells


def in_last_rounds(rows: pd.DataFrame, rounds: int) -> SeriesGroupBy:
    """The values of the evaluations in the last rounds of each seed, by seed."""
    last = rows.groupby("seed")["round"].transform("max")
    return rows[rows["round"] > last - rounds].groupby("seed")["value"]


def is_compared(numbers: pd.DataFrame) -> bool:
    """Whether any of these numbers are published."""
    return bool(numbers["published"].notna().any())


def identity(federation: Data, run: Any) -> dict[str, str]:
    """The columns that identify a row's run and federation."""
    return dict(zip(RUN, (federation.name, federation.dataset, run.label, run.title), strict=True))


def statistics(table: pd.DataFrame, key: tuple, prefix: str = "") -> dict[str, float]:
    """`STATISTICS` of one row of `fedlib.report.metrics.seeds.over_seeds`, its names prefixed.

    Args:
      table: indexed by the columns that `over_seeds` grouped by.
      key: of the row; without such a row, as when a run lacks a protocol, all are NaN.
      prefix: of the names.
    """
    found = table.loc[key] if key in table.index else dict.fromkeys(STATISTICS, np.nan)
    return {f"{prefix}{name}": float(found[name]) for name in STATISTICS}
