"""Mean accuracy of the clients, beside every published number with its source.

For papers whose published numbers come from several sources, not all from the paper itself. Each
source has its mark, and a failure to converge is shown in words.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError
from fedlib.report import comparisons, exhibits, printed
from fedlib.report.comparisons import MEAN
from fedlib.report.metrics import PRIMARY
from fedlib.report.tables import notes, sheets
from fedlib.report.tables.render import Cell, Column, Sheet, best_cells, percent
from fedlib.report.tables.sheets import Columns, TableInputs, differences, means, texts

FAILED = "does not converge"


class _Source(NamedTuple):
    """A source of published numbers: `mark` follows each number, and `title` explains the mark."""

    name: str
    mark: str
    title: str


class _Number(NamedTuple):
    """A published number as a fraction, its deviation, and its source; NaN if there is none."""

    value: float = np.nan
    std: float = np.nan
    converged: bool = True
    source: _Source | None = None


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have a row per federation and run, and per other published method.

    The published exhibit of a federation is "<source>-<name>", under the label of the run.

    Raises:
      ConfigError: if `names` has a federation that is not shown.
    """
    exhibit, kind = given.exhibit, given.kind
    shown = [federation["name"] for federation in exhibit["federations"]]
    if unknown := [name for name in kind.names if name not in shown]:
        raise ConfigError(f"names must be of {', '.join(shown)}, got {', '.join(unknown)}")
    known = _Published(given)
    numbers = _numbers(given, known)
    return given.sheet(
        numbers,
        given.blocks(numbers, partial(_columns, known=known)),
        notes.measured(exhibit),
        f"{comparisons.METRICS[MEAN].capitalize()}. Last: after the last round. {notes.BEST} "
        f"Difference: best minus published, in percentage points. {sheets.HIGHEST}",
        *_marks(known, numbers),
        *_published_note(exhibit, _is_compared(numbers)),
    )


def _marks(known: "_Published", numbers: pd.DataFrame) -> list[str]:
    """Explanations of the marks in use."""
    used = {*numbers["source"]}
    return [f"{source.mark}: {source.title}." for source in known.sources if source.name in used]


def _published_note(exhibit: dict, compared: bool) -> list[str]:
    """A caution about comparing both kinds of numbers, or a note that none are published."""
    if compared and exhibit["scale"] == exhibits.PAPER_SCALE:
        return ["Published numbers are those of the marked sources, with settings of their own."]
    return exhibits.published_note(exhibit, shown=compared)


class _Published:
    """Published numbers of an exhibit's runs."""

    def __init__(self, given: TableInputs):
        self.sources = [_Source(**source) for source in given.kind.sources]
        self._published, self._names = given.published, given.kind.names

    def of(self, federation: dict, label: str) -> _Number:
        """The number of the first source that has one."""
        key = federation["dataset"], label
        for source in self.sources:
            if federation["name"] not in self._names:
                break
            where = f"{source.name}-{self._names[federation['name']]}"
            value, std, converged = (
                printed.fractions(self._published, where, name).get(key, np.nan)
                for name in (MEAN, f"{MEAN}_std", "converged")
            )
            if not np.isnan(value) or not np.isnan(converged):
                return _Number(value, std, bool(np.isnan(converged) or converged), source)
        return _Number()


def _numbers(given: TableInputs, known: _Published) -> pd.DataFrame:
    """All numbers of the table, as fractions."""
    found = given.at_moments("federation", "label", metric=MEAN, **PRIMARY._asdict())
    unrun = [{"label": label, "title": title} for label, title in (given.kind.others or {}).items()]
    rows = []
    for federation in given.exhibit["federations"]:
        runs = exhibits.runs_of(given.exhibit, federation["name"])
        for run in [*runs, *unrun]:
            number = known.of(federation, run["label"])
            if run in unrun and number.source is None:
                continue
            key = (federation["name"], run["label"])
            last, best = (sheets.statistics(found[at], key) for at in sheets.MOMENTS)
            rows.append(
                {
                    **sheets.identity(federation, run),
                    "metric": MEAN,
                    "published": number.value,
                    "published_std": number.std,
                    "converged": number.converged,
                    "source": number.source.name if number.source else "",
                    **last,
                    **{f"best_{name}": value for name, value in best.items()},
                    "seeds": 0 if run in unrun else len(given.exhibit["seeds"]),
                    "difference": printed.off(best["mean"], number.value),
                }
            )
    return pd.DataFrame(rows)


def _is_compared(numbers: pd.DataFrame) -> bool:
    """Whether anything is published, if only that a run does not converge."""
    return bool(numbers["source"].ne("").any())


def _columns(mine: pd.DataFrame, known: _Published) -> Columns:
    """A row per run, without published columns where nothing is published."""
    compared = _is_compared(mine)
    yield Column("Method"), texts(mine["title"])
    if compared:
        yield Column("published", spread="std"), _published_cells(mine, known)
    yield Column("last"), means(mine)
    yield Column("best"), means(mine, "best_")
    if compared:
        yield Column("difference"), differences(mine)
    yield Column("Seeds"), texts(mine["seeds"])


def _published_cells(numbers: pd.DataFrame, known: _Published) -> list[Cell]:
    """The numbers as printed, each with the mark of its source."""
    marks = {source.name: f" {source.mark}" for source in known.sources}
    cells = []
    for row in numbers.to_dict("records"):
        text = percent(row["published"], row["published_std"], 2) if row["converged"] else FAILED
        cells.append(text + marks.get(row["source"], ""))
    return best_cells(numbers["published"].tolist(), cells, 2)
