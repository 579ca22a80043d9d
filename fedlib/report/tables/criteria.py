"""Acceptance criteria of a reproduction, with verdicts.

A criterion is data: predicates of `fedlib.report.predicates` on numbers of runs, which are means
over the seeds that all of them have. A criterion is shown as not run if its runs are missing, and
as not testable if it needs the paper's own numbers at a scale with other settings. A run that lacks
a number is an error.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError, DataError
from fedlib.report import exhibits, measures, predicates, printed
from fedlib.report.metrics import TRAFFIC
from fedlib.report.tables.cost import in_bytes
from fedlib.report.tables.render import (
    ABSENT,
    Block,
    Cell,
    Claim,
    Column,
    Sheet,
    percent,
    points,
)
from fedlib.report.tables.sheets import TableInputs
from fedlib.results import TOTALS
from fedlib.spec.criteria import Cell as Number
from fedlib.spec.criteria import Criterion, Published

NOT_RUN = "not run"
UNTESTABLE = "not testable"  # at this scale
VERDICTS = {True: "yes", False: "no", None: NOT_RUN}
UNTESTABLE_NOTE = (
    f"{UNTESTABLE.capitalize()}: it asks for the numbers that the paper prints, and at this scale "
    "rounds, data or models are not the paper's."
)
COSTS = (*TOTALS, "bytes")  # metrics of a run as a whole, not of clients
BYTES = tuple(name for name in COSTS if name.startswith("bytes"))


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per criterion.

    Raises:
      ConfigError: for a criterion whose runs have no seed in common.
      DataError: if one of the runs lacks the number.
    """
    exhibit, criteria = given.exhibit, given.kind.parsed()
    source = _Numbers(given)
    rows = [
        _row(criterion, source, given.published, predicates.testable(criterion, exhibit["scale"]))
        for criterion in criteria
    ]
    numbers = pd.DataFrame([row.numbers for row in rows])
    sheet = given.sheet(
        numbers,
        [Block("", _columns(), [row.cells for row in rows], num_keys=2)],
        *_notes(criteria, numbers),
    )
    return replace(sheet, claims=[row.claim for row in rows if row.claim])


def _notes(criteria: list[Criterion], numbers: pd.DataFrame) -> list[str]:
    about: dict[str, list[str]] = {}  # a note, and titles of the criteria with it
    for criterion in criteria:
        if criterion.note:
            about.setdefault(criterion.note.rstrip("."), []).append(criterion.title)
    return [
        f"{_tally(numbers)}. Values are means over the seeds that all its runs have, in the order "
        "in which the criterion names them: percent, differences in points with a sign, or plain "
        "numbers. A verdict is about these means: no test of significance.",
        f"{NOT_RUN.capitalize()}: a run that the criterion is about is not in these results. "
        "Published: the same numbers as the paper prints them, where it does.",
        *([UNTESTABLE_NOTE] if (numbers["reached"] == UNTESTABLE).any() else []),
        *(f"{'; '.join(titles)}: {note}." for note, titles in about.items()),
    ]


class _Row(NamedTuple):
    """A criterion as numbers and cells, and as a claim if it was run and is a main one."""

    numbers: dict
    cells: list[Cell]
    claim: Claim | None


class _Numbers:
    """Numbers of an exhibit's runs, for the cells of criteria."""

    def __init__(self, given: TableInputs):
        self._exhibit = given.exhibit
        self._metrics, self._clients = (
            exhibits.pick(frame, paper=given.exhibit["paper"])
            for frame in (given.metrics, given.clients)
        )
        self._runs = {(run["federation"], run["label"]): run for run in given.exhibit["runs"]}

    def has(self, cell: Number) -> bool:
        """Whether the exhibit has the cell's run."""
        return (cell.federation, cell.label) in self._runs

    def of(self, cell: Number) -> pd.Series:
        """The number of each seed of the cell's run, by seed.

        Raises:
          DataError: if the run lacks the number.
        """
        about = cell._asdict()
        del about["published"]
        run = self._runs[cell.federation, cell.label]
        if cell.metric in measures.MEASURES:
            mine = (exhibits.of_run(frame, run) for frame in (self._metrics, self._clients))
            return measures.MEASURES[cell.metric](run, *mine)
        if cell.metric in COSTS:
            about |= TRAFFIC._asdict()
        found = exhibits.pick(self._metrics, **about)
        if found.empty:
            raise DataError(
                f"{self._exhibit['name']} needs {cell.metric} of {run['federation']}/"
                f"{run['label']} ({about['group']}, {about['protocol']}, {about['split']}, "
                f"{about['at']}), which the metrics do not have"
            )
        return found.set_index("seed")["value"]


def _row(
    criterion: Criterion, source: _Numbers, published: pd.DataFrame | None, testable: bool
) -> _Row:
    """The row of one criterion, without a verdict unless it is `testable`."""
    terms = criterion.terms
    run = all(source.has(cell) for term in terms for cell in term)
    theirs = [_printed(term, published) for term in terms]
    reached = margin = None
    ours: list[float] = []
    seeds = 0
    if run:
        found = _of_common_seeds([[source.of(cell) for cell in term] for term in terms])
        ours = [_difference([x.mean() for x in term], criterion.unit) for term in found]
        seeds = len(found[0][0])
        if not seeds:
            raise ConfigError(f"criterion {criterion.title!r}: its runs have no seed in common")
        if testable:
            reached, margin = predicates.verdict(criterion, ours, theirs, seeds)
    if criterion.published:
        theirs = [_number(criterion.published, published)]
    texts = {
        "criterion": criterion.title,
        "source": criterion.source,
        "published": _text(criterion, theirs, plain=criterion.published is not None),
        "value": _text(criterion, ours) if run else ABSENT,
        "reached": VERDICTS[reached] if testable else UNTESTABLE,
    }
    verdict = Cell(texts["reached"], verdict=texts["reached"])
    *told, _ = map(Cell, texts.values())
    cells = [*told, verdict, Cell(str(seeds) if run else ABSENT)]
    about = {
        "kind": criterion.kind,
        "margin": np.nan if margin is None else margin,
        "seeds": seeds,
    }
    claim = _claim(criterion, texts, {"paper": theirs, "here": ours}) if run else None
    return _Row(texts | about, cells, claim)


def _claim(criterion: Criterion, texts: dict, numbers: dict[str, list[float]]) -> Claim | None:
    """A criterion about the main claim, without lists of numbers in which any is missing."""
    if not criterion.main:
        return None
    return Claim(
        title=criterion.title,
        verdict=texts["reached"],
        is_difference=any(len(term) == 2 for term in criterion.terms),
        texts={"paper": texts["published"], "here": texts["value"]},
        numbers={who: found for who, found in numbers.items() if not np.isnan(found).any()},
    )


def _of_common_seeds(terms: list[list[pd.Series]]) -> list[list[pd.Series]]:
    """The numbers of the seeds that all runs have."""
    common = set.intersection(*({*series.index} for term in terms for series in term))
    return [[series[series.index.isin(common)] for series in term] for term in terms]


def _difference(numbers: list[float], unit: str) -> float:
    """The first number, or the first minus the second; for percent, of the numbers as printed."""
    if len(numbers) == 1:
        return float(numbers[0])
    return printed.difference(*numbers) if unit == "percent" else float(numbers[0] - numbers[1])


def _printed(term: Sequence[Number], published: pd.DataFrame | None) -> float:
    """The term in the paper's own numbers; NaN if the paper does not print all of them."""
    numbers = [_number(cell.published, published) for cell in term]
    return float(numbers[0] - numbers[1]) if len(numbers) == 2 else numbers[0]


def _number(where: Published | None, published: pd.DataFrame | None) -> float:
    """The published number at `where` as a fraction, or as a count; NaN if there is none."""
    if where is None:
        return np.nan
    found = printed.fractions(published, where.exhibit, where.metric)
    return found.get((where.dataset, where.label), np.nan)


def _text(criterion: Criterion, values: list[float], plain: bool = False) -> str:
    """The values of the terms in order; a dash if there are none."""
    if np.isnan(values).all():
        return ABSENT
    texts = []
    for term, value in zip(criterion.terms, values, strict=False):
        if np.isnan(value):
            texts.append(ABSENT)
        elif plain or criterion.unit == "number":
            sent = any(cell.metric in BYTES for cell in term)
            texts.append(in_bytes(value) if sent else f"{value:.4g}")
        else:
            texts.append(points(value) if len(term) == 2 else percent(value))
    return ", ".join(texts)


def _columns() -> list[Column]:
    heads = ("Criterion", "Source", "Published", "Value", "Reached", "Seeds")
    return [Column(head) for head in heads]


def _tally(numbers: pd.DataFrame) -> str:
    """Counts of verdicts, "3 reached, 1 not reached, 0 not testable ..., 2 not run"."""
    count = Counter(numbers["reached"])
    return (
        f"{count['yes']} reached, {count['no']} not reached, {count[UNTESTABLE]} {UNTESTABLE} at "
        f"this scale, {count[NOT_RUN]} {NOT_RUN}"
    )
