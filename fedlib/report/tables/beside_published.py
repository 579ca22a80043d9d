"""Mean accuracy of the clients, beside every published number and where that one is from.

For papers whose numbers come from several sources, of which not all are the paper itself: each
source has its mark, and a failure to converge is shown as what it is.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError
from fedlib.report import comparisons, exhibits, printed
from fedlib.report.metrics import PRIMARY
from fedlib.report.tables import notes
from fedlib.report.tables.render import Cell, Column, Sheet, best_cells, percent
from fedlib.report.tables.sheets import HIGHEST, MOMENTS, Columns, Inputs, differences, means, texts
from fedlib.report.tables.summary import identity, statistics

FAILED = "does not converge"


class _Source(NamedTuple):
    """Where published numbers are from: `mark` stands behind them, `title` explains it."""

    name: str
    mark: str
    title: str


class _Number(NamedTuple):
    """A published number as a fraction, its deviation, and its source; NaN if there is none."""

    value: float = np.nan
    std: float = np.nan
    converged: bool = True
    source: _Source | None = None


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    sources: list[dict],
    names: dict[str, str],
    metric: str = "accuracy_client_mean",
    others: dict[str, str] | None = None,
) -> Sheet:
    """The table; its numbers have one row per federation and run, and per published other.

    The published exhibit of a federation is "<source>-<name>", under the label of the run.

    Args:
      exhibit, metrics, clients, published: see `fedlib.report.exhibits`,
        `fedlib.report.metrics`, `fedlib.report.printed`.
      sources: of each the "name", the "mark" and the "title"; the first that has a number is shown.
      names: of the published exhibits, by federation; a federation may have none.
      metric: of `fedlib.report.comparisons.METRICS`, here and of the published numbers. Those of
        "<metric>_std" are their deviations, and "converged" 0 is a failure to converge.
      others: titles of what is published but not run here, by label.

    Raises:
      ConfigError: for another metric, or a name of a federation that is not shown.
    """
    shown = [federation["name"] for federation in exhibit["federations"]]
    if metric not in comparisons.METRICS:
        raise ConfigError(f"metric must be {' or '.join(comparisons.METRICS)}, got {metric!r}")
    if unknown := [name for name in names if name not in shown]:
        raise ConfigError(f"names must be of {', '.join(shown)}, got {', '.join(unknown)}")
    known = _Published(published, [_Source(**source) for source in sources], names, metric)
    given = Inputs(exhibit, metrics, published)
    numbers = _numbers(given, known, metric, others or {})
    return given.sheet(
        numbers,
        given.blocks(numbers, partial(_columns, known=known)),
        *notes.measured(exhibit),
        f"{comparisons.METRICS[metric].capitalize()}. Last: after the last round. {notes.BEST} "
        f"Difference: best minus published, in percentage points. {HIGHEST}",
        *_marks(known, numbers),
        *_published_note(exhibit, _is_compared(numbers)),
    )


def _marks(known: "_Published", numbers: pd.DataFrame) -> list[str]:
    """What the marks mean that some number has."""
    used = {*numbers["source"]}
    return [f"{source.mark}: {source.title}." for source in known.sources if source.name in used]


def _published_note(exhibit: dict, compared: bool) -> list[str]:
    """What to beware of when both kinds of numbers are compared, or that there is but one."""
    if compared and exhibit["scale"] == exhibits.PAPER_SCALE:
        return ["Published numbers are those of the marked sources, with settings of their own."]
    return exhibits.published_note(exhibit, shown=compared)


class _Published:
    """What is published of the runs of an exhibit."""

    def __init__(
        self,
        published: pd.DataFrame | None,
        sources: list[_Source],
        names: dict[str, str],
        metric: str,
    ):
        self.sources = sources
        self._published, self._names, self._metric = published, names, metric

    def of(self, federation: dict, label: str) -> _Number:
        """The number of the first source that has one."""
        key = federation["dataset"], label
        for source in self.sources:
            if federation["name"] not in self._names:
                break
            where = f"{source.name}-{self._names[federation['name']]}"
            value, std, converged = (
                printed.fractions(self._published, where, name).get(key, np.nan)
                for name in (self._metric, f"{self._metric}_std", "converged")
            )
            if not np.isnan(value) or not np.isnan(converged):
                return _Number(value, std, bool(np.isnan(converged) or converged), source)
        return _Number()


def _numbers(given: Inputs, known: _Published, metric: str, others: dict[str, str]) -> pd.DataFrame:
    """Everything the table shows, as fractions."""
    found = given.at_moments("federation", "label", metric=metric, **PRIMARY._asdict())
    unrun = [{"label": label, "title": title} for label, title in others.items()]
    rows = []
    for federation in given.exhibit["federations"]:
        runs = exhibits.runs_of(given.exhibit, federation["name"])
        for run in [*runs, *unrun]:
            number = known.of(federation, run["label"])
            if run in unrun and number.source is None:
                continue
            key = (federation["name"], run["label"])
            last, best = (statistics(found[at], key) for at in MOMENTS)
            rows.append(
                {
                    **identity(federation, run),
                    "metric": metric,
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
    """Whether something of it is published, be it that a run does not converge."""
    return bool(numbers["source"].ne("").any())


def _columns(mine: pd.DataFrame, known: _Published) -> Columns:
    """Nothing of what is published where nothing is."""
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
    told = []
    for row in numbers.to_dict("records"):
        text = percent(row["published"], row["published_std"], 2) if row["converged"] else FAILED
        told.append(text + marks.get(row["source"], ""))
    return best_cells(numbers["published"].tolist(), told, 2)
