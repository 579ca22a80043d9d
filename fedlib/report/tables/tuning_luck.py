"""The spread of each method's accuracy by source: data sets, federations, tunings, trainings."""

from collections.abc import Callable, Iterator

import pandas as pd

from fedlib.report import contrasts, luck
from fedlib.report.tables import render
from fedlib.report.tables.render import Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, block, texts

PLURALS = {"dataset": "data sets", "federation": "federations"}
PLURALS |= {"tuning": "tunings", "training": "trainings"}


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have a row for each method, and for each difference."""
    kind = given.kind
    against, (again, once) = kind.against, luck.accuracies(given, kind.rows)
    titles = [*dict.fromkeys(again["title"])]
    numbers = pd.DataFrame([*_rows(titles, again, once, against)])
    own, leads = (numbers[numbers["less"] == less] for less in ("", against))
    blocks = [block("Accuracy", _columns(own, render.percent))]
    if len(leads):
        blocks.append(block(f"Accuracy less that of {against}", _columns(leads, render.points)))
    return given.sheet(
        numbers,
        blocks,
        "Mean over federations, each with a tuning and a training for each seed; and standard "
        "deviations in points of what data sets, federations of a data set, tunings and trainings "
        "add, by a mixed model (restricted maximum likelihood). Tunings are of all their trials, "
        "each on a split and with trials of its own.",
        "Trainings are told from tunings by the runs whose seeds share a tuning; a shift of these "
        "runs is taken out. A dash: too few data sets, federations or seeds, or no fit. "
        f"The first deviation is rough: it is of {again['dataset'].nunique()} data sets.",
    )


def _rows(
    titles: list[str], again: pd.DataFrame, once: pd.DataFrame, against: str
) -> Iterator[dict]:
    for title in titles:
        mine = (values[values["title"] == title] for values in (again, once))
        yield {"title": title, "less": "", **luck.components(*mine)}
    for title in titles:
        if title != against and against in titles:
            mine = (contrasts.subtract(values, title, against) for values in (again, once))
            yield {"title": title, "less": against, **luck.components(*mine)}


def _columns(part: pd.DataFrame, text: Callable[[float], str]) -> Columns:
    yield Column("Method"), texts(part["title"])
    yield Column("mean"), texts(map(text, part["mean"]))
    for source in luck.SOURCES:
        yield Column(PLURALS[source], "spread by"), texts(map(render.percent, part[source]))
