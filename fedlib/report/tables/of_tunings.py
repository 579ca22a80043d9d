"""Tables of the luck of tuning: spreads of accuracy by source, and which differences survive it."""

from collections.abc import Callable, Iterator

import pandas as pd

from fedlib.report import contrasts, luck, statistics
from fedlib.report.tables import render
from fedlib.report.tables.contrasts import intervals
from fedlib.report.tables.render import Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, block, texts

PLURALS = {"dataset": "data sets", "federation": "federations"}
PLURALS |= {"tuning": "tunings", "training": "trainings"}
SURE = 0.95  # share of draws of tunings
SURVIVES, LUCK, FEW, NEVER = "survives", "luck of the tuning", "few data sets", "was not decided"


def tuning_luck(given: TableInputs) -> Sheet:
    """The table; its numbers have a row for each method, and for each difference."""
    kind = given.kind
    against, (again, once) = kind.against, luck.accuracies(given, kind.rows)
    titles = [*dict.fromkeys(again["title"])]
    numbers = pd.DataFrame([*_rows(titles, again, once, against)])
    own, leads = (numbers[numbers["less"] == less] for less in ("", against))
    blocks = [block("Accuracy", _spreads(own, render.percent))]
    if len(leads):
        blocks.append(block(f"Accuracy less that of {against}", _spreads(leads, render.points)))
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


def _spreads(part: pd.DataFrame, text: Callable[[float], str]) -> Columns:
    yield Column("Method"), texts(part["title"])
    yield Column("mean"), texts(map(text, part["mean"]))
    for source in luck.SOURCES:
        yield Column(PLURALS[source], "spread by"), texts(map(render.percent, part[source]))


def survival(given: TableInputs) -> Sheet:
    """The table; its numbers have a row for each method that is compared."""
    kind = given.kind
    found = luck.survival(*luck.accuracies(given, kind.rows), kind.of, kind.against)
    numbers = found.assign(verdict=[verdict(row) for row in found.to_dict("records")])
    return given.sheet(
        numbers,
        [block(f"Against {kind.against}", _survivors(numbers))],
        f"{kind.registered} Points of accuracy, the mean over seen clients; p is adjusted by Holm "
        "for all rows. One tuning: the Hodges-Lehmann median over federations and the signed-rank "
        "test, where all seeds share a tuning. All tunings: the same with a tuning for each seed, "
        "the mean over these.",
        "Draws: share of draws of one tuning for each method and federation in which the "
        "difference is decided with the same sign. Data sets: the mean of the means of data sets, "
        "with Student's interval and test.",
        "Survives: decided (p at most 0.05) with one tuning, with all, in "
        f"{100 * SURE:.0f} % of the draws, and over data sets, always with the same sign.",
    )


def verdict(row: dict) -> str:
    """What became of a difference that was decided with one tuning."""
    level = 1 - statistics.LEVEL
    if not row["p_before"] <= level:
        return NEVER
    if not (row["p"] <= level and row["before"] * row["median"] > 0 and row["share"] >= SURE):
        return LUCK
    return SURVIVES if row["p_datasets"] <= level and row["before"] * row["datasets"] > 0 else FEW


def _survivors(part: pd.DataFrame) -> Columns:
    yield Column("Method"), texts(part["title"])
    once, again, datasets = "One tuning", "All tunings", "Data sets"
    yield Column("median", once), texts(map(render.points, part["before"]))
    yield Column("p", once), texts(part["p_before"], ".3g")
    yield Column("median", again), texts(map(render.points, part["median"]))
    yield Column("95 % interval", again), intervals(part, "low", "high")
    yield Column("p", again), texts(part["p"], ".3g")
    yield Column("draws"), texts(map(render.percent, part["share"]))
    yield Column("mean", datasets), texts(map(render.points, part["datasets"]))
    yield Column("95 % interval", datasets), intervals(part, "datasets_low", "datasets_high")
    yield Column("p", datasets), texts(part["p_datasets"], ".3g")
    yield Column("verdict"), texts(part["verdict"])
