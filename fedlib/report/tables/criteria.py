"""Acceptance criteria of a reproduction, with verdicts.

A criterion is data: predicates of `fedlib.report.predicates` on numbers of runs, which are means
over the seeds that all of them have. Those without a verdict are listed below the table: a
criterion is not run if its runs are missing, and not testable if it needs the paper's own numbers
at a scale with other settings. A run that lacks a number is an error. At scale demo an order is
said to hold there or not, and nothing is counted.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError, DataError
from fedlib.report import exhibits, measures, predicates, printed
from fedlib.report.metrics.tidy import TRAFFIC
from fedlib.report.tables import render, sheets
from fedlib.report.tables.cost import in_bytes
from fedlib.report.tables.render import ABSENT, Block, Cell, Column, Sheet
from fedlib.report.tables.sheets import TableInputs
from fedlib.results import TOTALS
from fedlib.spec.criteria import Criterion, Number, Published

NOT_RUN = "not run"
UNTESTABLE = "not testable"  # at this scale
VERDICTS = {True: "yes", False: "no", None: NOT_RUN}
AT_DEMO = {"yes": "holds here", "no": "does not hold here"}
WITHOUT = {  # why there is no verdict
    NOT_RUN: "Not run, as a run that it is about is not in these results",
    UNTESTABLE: "Not testable at this scale, as rounds, data or models are not the paper's, whose "
    "own numbers are asked for",
}
SIGNS = {"descending": ">", "highest": ">", "ascending": "<", "lowest": "<"}
COSTS = (*TOTALS, "bytes")  # metrics of a run as a whole, not of clients
BYTES = tuple(name for name in COSTS if name.startswith("bytes"))


def build(given: TableInputs) -> Sheet:
    """The table of criteria with a verdict; its numbers have one row for every criterion.

    Raises:
      ConfigError: for a criterion whose runs have no seed in common.
      DataError: if one of the runs lacks the number.
    """
    exhibit, criteria = given.exhibit, given.kind.parse()
    source = _Numbers(given)
    # Published numbers need the paper's rounds, data and models; orders, gains and ranges do not.
    of_paper = exhibit.scale == exhibits.PAPER_SCALE
    rows = [
        _row(criterion, source, given.published, of_paper or criterion.kind != "published")
        for criterion in criteria
    ]
    numbers = pd.DataFrame([row.numbers for row in rows])
    pairs = [*zip(criteria, rows, strict=True)]
    judged = [(one, row) for one, row in pairs if row.numbers["reached"] not in WITHOUT]
    is_demo = exhibit.scale == exhibits.DEMO_SCALE
    sheet = given.sheet(
        numbers,
        [_block([row for _, row in judged], is_demo)] if judged else [],
        *_notes([criterion for criterion, _ in judged], numbers, is_demo),
    )
    main = [one.title for one, row in pairs if one.main and row.numbers["seeds"]]
    return replace(sheet, claims=main)


def _block(rows: list["_Row"], is_demo: bool) -> Block:
    """Each criterion with its numbers by name; without published ones if there are none."""
    heads = {"criterion": "Criterion", "source": "Source", "paper": "Published", "here": "Value"}
    if all(row.texts["paper"] == ABSENT for row in rows):
        del heads["paper"]
    cells = [
        [
            *(Cell((row.numbers | row.texts)[name]) for name in heads),
            _verdict(row.numbers["reached"], is_demo),
            Cell(str(row.numbers["seeds"])),
        ]
        for row in rows
    ]
    last = "In these runs" if is_demo else "Reached"
    columns = [Column(head) for head in (*heads.values(), last, "Seeds")]
    return Block("", columns, cells, num_keys=len(heads))


def _verdict(reached: str, is_demo: bool) -> Cell:
    return Cell(AT_DEMO[reached]) if is_demo else Cell(reached, verdict=reached)


def _notes(judged: list[Criterion], numbers: pd.DataFrame, is_demo: bool) -> Iterator[str]:
    yield (
        f"{'' if is_demo else _tally(numbers)}Values are means over the seeds that all its runs "
        "have: percent, differences in points with a sign, or plain numbers. What is said of them "
        "is no test of significance."
    )
    for verdict, why in WITHOUT.items():
        if titles := numbers.loc[numbers["reached"] == verdict, "criterion"].tolist():
            yield f"{why}: {'; '.join(titles)}."
    about: dict[str, list[str]] = {}  # a note, and titles of the criteria with it
    for criterion in judged:
        if criterion.note:
            about.setdefault(criterion.note.rstrip("."), []).append(criterion.title)
    yield from (f"{'; '.join(titles)}: {note}." for note, titles in about.items())


class _Row(NamedTuple):
    """A criterion in numbers.

    Attributes:
      numbers: its row of the csv, with the values of its terms in the order of "terms".
      texts: the values by name, of the paper and here.
    """

    numbers: dict
    texts: dict[str, str]


class _Numbers:
    """Numbers of an exhibit's runs, for the cells of criteria."""

    def __init__(self, given: TableInputs):
        self._exhibit = given.exhibit
        self._metrics = exhibits.pick(given.metrics, paper=given.exhibit.paper)
        self._clients = exhibits.pick(given.clients, paper=given.exhibit.paper)
        self._runs = {(run.federation, run.label): run for run in given.exhibit.runs}
        self._federations = {one.name: one.title for one in given.exhibit.federations}

    def names(self, criterion: Criterion) -> list[str]:
        """A name for each term: of its runs, or of its federation if all runs are called alike.

        A single number needs none.
        """
        terms = criterion.terms
        names = [" − ".join(self._name(cell) for cell in term) for term in terms]
        if len(terms) > 1 and len({*names}) == 1:
            names = [self._federations.get(cell.federation, cell.federation) for cell, *_ in terms]
        return names if sum(map(len, terms)) > 1 else [""]

    def _name(self, cell: Number) -> str:
        run = self._runs.get((cell.federation, cell.label))
        return cell.name or (run.title if run else cell.label)

    def has(self, cell: Number) -> bool:
        """Whether the exhibit has the cell's run."""
        return (cell.federation, cell.label) in self._runs

    def of(self, cell: Number) -> pd.Series:
        """The number of each seed of the cell's run, by seed.

        Raises:
          DataError: if the run lacks the number.
        """
        about = cell._asdict()
        averaged = about.pop("averaged")
        del about["published"], about["name"]
        run = self._runs[cell.federation, cell.label]
        if cell.metric in measures.MEASURES:
            mine = (exhibits.of_run(frame, run) for frame in (self._metrics, self._clients))
            return measures.MEASURES[cell.metric](run, *mine)
        if cell.metric in COSTS:
            about |= TRAFFIC._asdict()
        found = exhibits.pick(self._metrics, **about)
        if found.empty:
            raise DataError(
                f"{self._exhibit.name} needs {cell.metric} of {run.federation}/"
                f"{run.label} ({about['group']}, {about['protocol']}, {about['split']}, "
                f"{about['at']}), which the metrics do not have"
            )
        return sheets.in_last_rounds(found, averaged).mean()


def _row(
    criterion: Criterion, source: _Numbers, published: pd.DataFrame | None, testable: bool
) -> _Row:
    """The row of one criterion, without a verdict unless it is `testable`."""
    terms = criterion.terms
    run = all(source.has(cell) for term in terms for cell in term)
    theirs = [published_term(term, published) for term in terms]
    reached = margin = None
    ours: list[float] = []
    seeds = 0
    if run:
        cells = [source.of(cell) for term in terms for cell in term]
        found = pd.concat(cells, axis="columns", join="inner")  # the seeds that all runs have
        seeds, means = len(found), iter(found.mean().tolist())
        ours = [_difference([next(means) for _ in term], criterion.unit) for term in terms]
        if not seeds:
            raise ConfigError(f"criterion {criterion.title!r}: its runs have no seed in common")
        if testable:
            reached, margin = predicates.verdict(criterion, ours, theirs, seeds)
    names, values = source.names(criterion), {"paper": theirs, "here": ours}
    texts = {who: _texts(criterion, values[who]) for who in values}
    named = {who: _describe(criterion, names, values[who], texts[who]) for who in values}
    if criterion.published:
        named["paper"] = f"{published_number(criterion.published, published):.4g}"
        texts["paper"] = [named["paper"]]
    numbers = {
        "criterion": criterion.title,
        "source": criterion.source,
        "terms": "; ".join(names),
        "published": _list(texts["paper"]),
        "value": _list(texts["here"]),
        "reached": VERDICTS[reached] if testable else UNTESTABLE,
        "kind": criterion.kind,
        "margin": np.nan if margin is None else margin,
        "seeds": seeds,
    }
    return _Row(numbers, named)


def _describe(criterion: Criterion, names: list[str], values: list[float], texts: list[str]) -> str:
    """The values with their names, sorted if the criterion is about an order; a dash for none."""
    sign = SIGNS.get(criterion.kind, "")
    known = [one for one in zip(values, names, texts, strict=False) if not np.isnan(one[0])]
    if sign:
        known.sort(key=lambda one: one[0], reverse=sign == ">")
    found, before = "", np.nan
    for value, name, text in known:
        between = f" {'=' if abs(value - before) < predicates.ROUNDING else sign} "
        found += (between if sign else ", ") * bool(found) + (f"{name}: " if name else "") + text
        before = value
    return found or ABSENT


def _difference(numbers: list[float], unit: str) -> float:
    """The first number, or the first minus the second; for percent, of the numbers as printed."""
    if len(numbers) == 1:
        return float(numbers[0])
    return printed.difference(*numbers) if unit == "percent" else float(numbers[0] - numbers[1])


def published_term(term: Sequence[Number], published: pd.DataFrame | None) -> float:
    """The term in the paper's own numbers; NaN if the paper does not print all of them."""
    numbers = [published_number(cell.published, published) for cell in term]
    return float(numbers[0] - numbers[1]) if len(numbers) == 2 else numbers[0]


def published_number(where: Published | None, published: pd.DataFrame | None) -> float:
    """The published number at `where` as a fraction, or as a count; NaN if there is none."""
    if where is None:
        return np.nan
    found = printed.fractions(published, where.exhibit, where.metric)
    return found.get((where.dataset, where.label), np.nan)


def _texts(criterion: Criterion, values: list[float]) -> list[str]:
    """The values of the terms in order."""
    texts = []
    for term, value in zip(criterion.terms, values, strict=False):
        if np.isnan(value):
            texts.append(ABSENT)
        elif criterion.unit == "number":
            sent = any(cell.metric in BYTES for cell in term)
            texts.append(in_bytes(value) if sent else f"{value:.4g}")
        else:
            texts.append(render.points(value) if len(term) == 2 else render.percent(value))
    return texts


def _list(texts: list[str]) -> str:
    return ABSENT if {*texts} <= {ABSENT} else ", ".join(texts)


def _tally(numbers: pd.DataFrame) -> str:
    """Counts of verdicts, "3 reached, 1 not reached, 0 not testable ..., 2 not run. "."""
    count = Counter(numbers["reached"])
    return (
        f"{count['yes']} reached, {count['no']} not reached, {count[UNTESTABLE]} {UNTESTABLE} at "
        f"this scale, {count[NOT_RUN]} {NOT_RUN}. "
    )
