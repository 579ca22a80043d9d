"""Mean accuracy of the clients, beside every published number with its source.

For papers whose published numbers come from several sources, not all from the paper itself. Each
source has its mark, and a failure to converge is shown in words.
"""

from functools import partial
from itertools import starmap
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError
from fedlib.report import comparisons, exhibits, notes, printed
from fedlib.report.comparisons import MEAN
from fedlib.report.metrics import PRIMARY
from fedlib.report.tables import sheets
from fedlib.report.tables.render import Cell, Column, Sheet, best_cells, percent
from fedlib.report.tables.sheets import Columns, TableInputs, differences, means, texts
from fedlib.spec import Data, ExhibitSpec

FAILED = "does not converge"
# Columns about a published number.
NUMBER = ("published", printed.ROW, "published_std", "converged", "source")


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have a row per federation and run, and per other published method.

    The published exhibit of a federation is "<source>-<name>", under the label of the run.

    Raises:
      ConfigError: if `names` has a federation that is not shown.
    """
    exhibit, kind = given.exhibit, given.kind
    shown = [federation.name for federation in exhibit.federations]
    if unknown := [name for name in kind.names if name not in shown]:
        raise ConfigError(f"names must be of {', '.join(shown)}, got {', '.join(unknown)}")
    numbers = _numbers(given)
    marks = {source["name"]: f" {source['mark']}" for source in kind.sources}
    return given.sheet(
        numbers,
        given.blocks(numbers, partial(_columns, marks=marks)),
        notes.measured(exhibit),
        f"{comparisons.METRICS[MEAN].capitalize()}. Last: after the last round. {notes.BEST} "
        f"Difference: best minus published, in percentage points. {sheets.HIGHEST}",
        *(f"{x['mark']}: {x['title']}." for x in kind.sources if x["name"] in {*numbers["source"]}),
        *_published_note(exhibit, _is_compared(numbers)),
    )


def _published_note(exhibit: ExhibitSpec, compared: bool) -> list[str]:
    """A caution about comparing both kinds of numbers, or a note that none are published."""
    if compared and exhibit.scale == exhibits.PAPER_SCALE:
        return ["Published numbers are those of the marked sources, with settings of their own."]
    return notes.published(exhibit, shown=compared)


def _published(given: TableInputs, federation: Data, label: str) -> dict:
    """`NUMBER` of the first source that has one, as fractions; NaN if there is none."""
    name = given.kind.names.get(federation.name)
    for source in given.kind.sources if name else ():
        value, std, converged = (
            printed.fractions(given.published, f"{source['name']}-{name}", metric).get(
                (federation.dataset, label), printed.NONE
            )
            for metric in (MEAN, f"{MEAN}_std", "converged")
        )
        if not np.isnan([value, converged]).all():
            number = (value, value.row, std, converged != 0, source["name"])
            return dict(zip(NUMBER, number, strict=True))
    return dict(zip(NUMBER, (np.nan, np.nan, np.nan, True, ""), strict=True))


class Unrun(NamedTuple):
    """A method that is published but not run here."""

    label: str
    title: str


def _numbers(given: TableInputs) -> pd.DataFrame:
    """All numbers of the table, as fractions."""
    found = given.at_moments("federation", "label", metric=MEAN, **PRIMARY._asdict())
    unrun = [*starmap(Unrun, (given.kind.others or {}).items())]
    rows = []
    for federation in given.exhibit.federations:
        runs = exhibits.runs_of(given.exhibit, federation.name)
        for run in [*runs, *unrun]:
            number = _published(given, federation, run.label)
            if run in unrun and not number["source"]:
                continue
            key = (federation.name, run.label)
            last, best = (sheets.statistics(found[at], key) for at in sheets.MOMENTS)
            rows.append(
                {
                    **sheets.identity(federation, run),
                    "metric": MEAN,
                    **number,
                    **last,
                    **{f"best_{name}": value for name, value in best.items()},
                    "seeds": 0 if run in unrun else len(given.exhibit.seeds),
                    "difference": printed.off(best["mean"], number["published"]),
                }
            )
    return pd.DataFrame(rows)


def _is_compared(numbers: pd.DataFrame) -> bool:
    """Whether anything is published, if only that a run does not converge."""
    return bool(numbers["source"].ne("").any())


def _columns(mine: pd.DataFrame, marks: dict[str, str]) -> Columns:
    """A row per run, without published columns where nothing is published."""
    compared = _is_compared(mine)
    yield Column("Method"), texts(mine["title"])
    if compared:
        yield Column("published", spread="std"), _published_cells(mine, marks)
    yield Column("last"), means(mine)
    yield Column("best"), means(mine, "best_")
    if compared:
        yield Column("difference"), differences(mine)
    yield Column("Seeds"), texts(mine["seeds"])


def _published_cells(numbers: pd.DataFrame, marks: dict[str, str]) -> list[Cell]:
    """The numbers as printed, each with the mark of its source."""
    cells = []
    for row in numbers.to_dict("records"):
        text = percent(row["published"], row["published_std"], 2) if row["converged"] else FAILED
        cells.append(text + marks.get(row["source"], ""))
    return best_cells(numbers["published"].tolist(), cells, 2)
