"""Differences of methods with one tuning, and what is left with others and over data sets."""

import pandas as pd

from fedlib.report import luck, statistics
from fedlib.report.tables import render
from fedlib.report.tables.contrasts import intervals
from fedlib.report.tables.render import Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, block, texts

SURE = 0.95  # share of draws of tunings
SURVIVES, LUCK, FEW, NEVER = "survives", "luck of the tuning", "few data sets", "was not decided"


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have a row for each method that is compared."""
    kind = given.kind
    found = luck.survival(*luck.accuracies(given, kind.rows), kind.of, kind.against)
    numbers = found.assign(verdict=[verdict(row) for row in found.to_dict("records")])
    return given.sheet(
        numbers,
        [block(f"Against {kind.against}", _columns(numbers))],
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


def _columns(part: pd.DataFrame) -> Columns:
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
