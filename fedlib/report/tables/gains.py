"""Lead of a method over the best of each group of other methods, beside published ranges.

A gain is the difference of two means over seeds. A group is, for instance, a paper's category.
"""

import numpy as np
import pandas as pd

from fedlib.errors import DataError
from fedlib.report import comparisons, exhibits, printed
from fedlib.report.metrics import PRIMARY
from fedlib.report.tables.render import ABSENT, Block, Column, Sheet, percent, points
from fedlib.report.tables.sheets import Columns, TableInputs, block, texts

DATASET = "unspecified"  # of the published ranges


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation and group.

    Raises:
      DataError: if a federation lacks the method, or every method of a group.
    """
    exhibit, kind = given.exhibit, given.kind
    where = {"at": "best", "metric": comparisons.MEAN, **PRIMARY._asdict()}
    means = given.over_seeds("federation", "label", **where)["mean"]
    numbers = pd.DataFrame(
        _gain(exhibit, means, federation, group, kind.of)
        for federation in exhibit["federations"]
        for group in kind.groups
    )
    ranges = [_range(given, kind.of, group) for group in kind.groups]
    return given.sheet(
        numbers,
        [*given.blocks(numbers, _columns, num_keys=2), _range_block(numbers, kind.groups, ranges)],
        f"Gain of {exhibits.titles(exhibit)[kind.of]} over the best of a group, in percentage "
        f"points: {comparisons.METRICS[comparisons.MEAN]}, at each seed's round with the highest "
        f"test accuracy, a selection on the test examples; mean over "
        f"{exhibits.seeds_text(exhibit)}. {exhibits.rounds_text(exhibit)}",
        *exhibits.published_note(exhibit, shown=not np.isnan(ranges).all()),
    )


def _gain(exhibit: dict, means: pd.Series, federation: dict, group: dict, of: str) -> dict:
    """The row of one federation and group.

    Raises:
      DataError: if the method, or all of the group, is missing.
    """
    here = means.loc[federation["name"]]
    others = here[here.index.isin(group["labels"])].drop(of, errors="ignore")
    if of not in here or others.empty:
        raise DataError(f"{federation['name']} has no run of {of}, or none of {group['title']}")
    best = others.idxmax()
    return {
        "federation": federation["name"],
        "dataset": federation["dataset"],
        "group": group["title"],
        "label": best,
        "title": exhibits.titles(exhibit)[best],
        "other": others[best],
        "mean": here[of],
        "gain": printed.difference(here[of], others[best], decimals=2),
    }


def _range(given: TableInputs, of: str, group: dict) -> list[float]:
    """The smallest and the largest published gain; NaN where there is none."""
    ends = (given.printed(f"{group['gain']}_{end}") for end in ("min", "max"))
    return [values.get((DATASET, of), np.nan) for values in ends]


def _columns(mine: pd.DataFrame) -> Columns:
    """A row per group."""
    yield Column("Over the best of"), texts(mine["group"])
    yield Column("which is"), texts(mine["title"])
    yield Column("with"), texts(percent(value, decimals=2) for value in mine["other"])
    yield Column("of the method"), texts(percent(value, decimals=2) for value in mine["mean"])
    yield Column("gain"), texts(points(value, 2) for value in mine["gain"])


def _range_block(numbers: pd.DataFrame, groups: list[dict], ranges: list[list[float]]) -> Block:
    """Smallest and largest gain of each group, published and here."""
    gains = [exhibits.pick(numbers, group=group["title"])["gain"] for group in groups]
    columns = (
        (Column("Smallest to largest gain over"), texts(group["title"] for group in groups)),
        (Column("published"), texts(map(_ends, ranges))),
        (Column("here"), texts(_ends([mine.min(), mine.max()]) for mine in gains)),
    )
    return block("Ranges", columns)


def _ends(values: list[float]) -> str:
    if np.isnan(values).all():
        return ABSENT
    return " to ".join(dict.fromkeys(points(value, 2) for value in values))
