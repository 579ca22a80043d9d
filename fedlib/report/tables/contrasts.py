"""Methods compared over federations: differences, intervals, tests, conclusions."""

import pandas as pd

from fedlib.report import contrasts, statistics
from fedlib.report.tables import render
from fedlib.report.tables.render import Cell, Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, block, texts


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have a row for each pair of methods."""
    kind = given.kind
    values = contrasts.accuracies(given, kind.rows)
    numbers = contrasts.all_contrasts(values, kind.of, kind.against)
    blocks = [
        block(f"Against {other}", _columns(numbers[numbers["against"] == other]))
        for other in dict.fromkeys(numbers["against"])
    ]
    return given.sheet(numbers, blocks, *how(kind.registered))


def how(registered: str) -> list[str]:
    """Notes on how to read the numbers."""
    rope = f"{100 * statistics.ROPE:g} point"
    return [
        f"{registered} Points of accuracy, the mean over seen clients. Federations are the sample; "
        "of each there is one number, the mean over its seeds of the paired difference.",
        "Median: the Hodges-Lehmann estimate with its 95 % interval, which six federations or "
        "more have. p: Wilcoxon's signed-rank test, adjusted by Holm for all rows of the block.",
        f"P: the Bayesian signed-rank test; equal is within {rope}. Bootstraps of the mean draw "
        "again the seeds of each federation, or data sets with all their federations. Their "
        "intervals are of 95 % of the draws, and short: of three seeds or five data sets they hold "
        "the mean in less than 90 % of cases.",
        "Clear: P(better) at least 0.9, ahead in three quarters of the federations, and no data "
        f"set more than {rope} behind; leaning: P(better) at least 0.75; equal: P(equal) at least "
        "0.75; unknown otherwise, and with fewer than 3 federations or 2 data sets.",
    ]


def _columns(part: pd.DataFrame) -> Columns:
    """The columns of a block."""
    yield Column("Method"), texts(part["title"])
    yield Column("federations"), texts(part["federations"])
    yield Column("ahead in"), texts(part["ahead"])
    yield Column("median"), texts(map(render.points, part["median"]))
    yield Column("95 % interval"), intervals(part, "low", "high")
    yield Column("p (Holm)"), texts(part["p_holm"], ".3g")
    for name in ("better", "equal", "worse"):
        yield Column(name, "P"), texts(part[name], ".2f")
    yield Column("seeds", "bootstrap"), intervals(part, "seeds_low", "seeds_high")
    yield Column("data sets", "bootstrap"), intervals(part, "datasets_low", "datasets_high")
    yield Column("verdict"), texts(part["verdict"])


def intervals(part: pd.DataFrame, low: str, high: str) -> list[Cell]:
    """Intervals in percentage points; a dash where there is none."""
    ends = zip(part[low], part[high], strict=True)
    return texts(
        render.ABSENT if pd.isna(one) else f"[{render.points(one)}, {render.points(other)}]"
        for one, other in ends
    )
