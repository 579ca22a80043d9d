"""A table as a grid: a row for each run, and published numbers beside ours under each head.

A kind (`of_clients`, `of_server`) declares which numbers there are, and their `Layout`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedlib.report import comparisons, notes
from fedlib.report.printed import ROW, off
from fedlib.report.tables import render, sheets
from fedlib.report.tables.render import Cell, Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, beside, texts
from fedlib.spec import Data

FAILED = "does not converge"
ORDINARY = {"converged": True, "mark": ""}  # published numbers, if a table does not say
Spot = tuple[Data, Any, dict]  # federation, run or row, and column of a number


@dataclass(frozen=True)
class Layout:
    """How the numbers of a grid are shown.

    Attributes:
      ours: heads of our numbers, each with the prefix of their statistics.
      heads: of the columns of text on the left, each with the column of numbers below it.
      decimals: of our numbers; printed: of published ones, in percent.
      spread: of our numbers, see `render.with_spread`.
      by_row: whether the numbers of a row are compared, and not those of a column.
      is_joined: whether equal columns of ours are one.
      after: the columns on the right, made of the first numbers of all rows.
    """

    ours: Mapping[str, str]
    heads: Iterable[tuple[str, str]] = (("Method", "title"),)
    decimals: int = 1
    printed: int = 2
    spread: str = "ci95"
    by_row: bool = False
    is_joined: bool = False
    after: Callable[[pd.DataFrame], Columns] = lambda x: [(Column("Seeds"), texts(x["seeds"]))]


def sheet(
    given: TableInputs,
    numbers: pd.DataFrame,
    columns: Callable[[pd.DataFrame], Columns],
    *said: str,
    names: Iterable[str] = (),
    num_keys: int = 1,
    compared: bool | None = None,
    unpublished: Iterable[str] = (),
) -> Sheet:
    """The sheet of a grid, with a note about published numbers.

    Args:
      numbers: a row for each number, with the heading of its "block"; without one (NaN) it is in
        the csv alone.
      columns: of a block, made of its numbers, such as `partial(lay_out, layout)`.
      said: see `TableInputs.sheet`.
      names: columns of the csv, in order; by default all but "block".
      num_keys: columns of text.
      compared: whether any number is published, if numbers do not say.
      unpublished: notes that follow.
    """
    blocks = [
        sheets.block(str(heading), columns(mine), num_keys)
        for heading, mine in numbers.groupby("block", sort=False)
    ]
    compared = sheets.is_compared(numbers) if compared is None else compared
    note = notes.comparison(given.exhibit, shown=compared)
    csv = numbers[[*names, ROW]] if names else numbers.drop(columns="block")
    return given.sheet(csv, blocks, *said, *note, *unpublished)


def measure_spots(
    given: TableInputs,
    spots: Iterable[Spot],
    found: Mapping[str, pd.DataFrame],
    more: Callable[[Data, Any, dict], dict] = lambda *_: {},
    decimals: int = 1,
) -> pd.DataFrame:
    """A row for each spot: the published number, statistics over seeds, the difference.

    Args:
      spots: a column has a title "column" and what `found` is indexed by; "exhibit", "key" and
        "printed" are those of its published numbers, by default the table's, the run's label and
        its own metric. "of" is the title of another published setting, without a difference.
      found: by prefix, see `over_seeds`; the last known one is compared with published numbers.
      more: further numbers of a spot.
      decimals: of the difference.
    """

    def number(federation: Data, run: Any, column: dict) -> dict:
        about = {"federation": federation.name, "label": run.label, **column}
        ours, mean = {}, np.nan
        for prefix, table in found.items():
            where = tuple(about[name] for name in table.index.names)
            ours |= sheets.statistics(table, where, prefix)
            mean = mean if np.isnan(ours[f"{prefix}mean"]) else ours[f"{prefix}mean"]
        key, metric = column.get("key") or run.label, column.get("printed") or column["metric"]
        where = run.label, key, metric, column.get("exhibit", "")
        theirs = comparisons.find_published(given, federation, *where)
        return {
            **{**sheets.identity(federation, run), "block": federation.title},
            **{"family": federation.family, **column},
            **{"published": theirs, ROW: theirs.row, **ours, "seeds": len(given.exhibit.seeds)},
            "difference": np.nan if column.get("of") else off(mean, theirs, decimals),
            **more(federation, run, column),
        }

    return pd.DataFrame([number(*spot) for spot in spots])


def column_fields(column: NamedTuple) -> dict:
    """A declared column, whose title is called "column" in the numbers."""
    fields = column._asdict()
    return {"column": fields.pop("title"), **fields}


def lay_out(layout: Layout, mine: pd.DataFrame) -> Columns:
    """The columns of a block: published, ours and difference of each column of its grid."""
    place = "place" if "place" in mine else "column"
    parts = [part for _, part in mine.groupby(place, sort=False)]
    for head, name in layout.heads:
        yield Column(head), texts(parts[0][name])
    theirs = _cells(layout, parts, "published", layout.printed, _theirs)
    ours = {
        head: _cells(layout, parts, f"{prefix}mean", layout.decimals, partial(_ours, prefix))
        for head, prefix in layout.ours.items()
    }
    for number, part in enumerate(parts):
        known = [head for head, x in layout.ours.items() if part[f"{x}mean"].notna().any()]
        here = {head: ours[head][number] for head in known or [*ours][:1]}
        if layout.is_joined and len({*map(tuple, here.values())}) == 1:
            here = {", ".join(here): [*here.values()][0]}
        difference = texts(render.points(value, layout.decimals) for value in part["difference"])
        compared = sheets.is_compared(mine if layout.by_row else part)
        more = {"compared": compared, "of": _same(part, "of"), "spread": layout.spread}
        yield from beside(part["column"].iloc[0], theirs[number], here, difference, **more)
    yield from layout.after(parts[0])


def _cells(
    layout: Layout, parts: list[pd.DataFrame], name: str, decimals: int, text: Callable
) -> list[list[Cell]]:
    """The cells of a number in each of the parts; the highest of the row or column is bold."""
    values, words = [part[name].tolist() for part in parts], [text(layout, part) for part in parts]
    turned = partial(zip, strict=True) if layout.by_row else lambda *lists: lists
    pairs = zip(turned(*values), turned(*words), strict=True)
    return [*map(list, turned(*(render.best_cells([*x], [*y], decimals) for x, y in pairs)))]


def _ours(prefix: str, layout: Layout, part: pd.DataFrame) -> list[str]:
    text = render.points if _same(part, "minus") else render.percent
    return render.with_spreads(part, partial(text, decimals=layout.decimals), prefix, layout.spread)


def _theirs(layout: Layout, part: pd.DataFrame) -> list[str]:
    if _same(part, "minus"):
        return [render.points(value, layout.printed) for value in part["published"]]
    stds = part.get("published_std", np.full(len(part), np.nan))
    converged, marks = (part.get(name, [value] * len(part)) for name, value in ORDINARY.items())
    rows = zip(part["published"], stds, converged, marks, strict=True)
    return [
        (render.percent(mean, std, layout.printed) if converges else FAILED) + mark
        for mean, std, converges, mark in rows
    ]


def _same(part: pd.DataFrame, name: str) -> str:
    """What all numbers of a column say; "" if they say no such thing."""
    return part[name].iloc[0] if name in part else ""
