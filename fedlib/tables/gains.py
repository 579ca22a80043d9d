"""By how much a method is ahead of the best of several groups of others, beside printed ranges.

A gain is the difference of two means over seeds. Unlike the table `lead`, which has every other
method, this one has the best of each group, such as that of the same category.
"""

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError, DataError
from fedlib.exhibits import comparisons as ways
from fedlib.exhibits import published as printed
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.metrics import PRIMARY
from fedlib.tables import notes
from fedlib.tables.render import ABSENT, Block, Cell, Column, Sheet, percent, points

WHEN = {
    "last": "after the last round",
    "best": "at each seed's round with the highest test accuracy, a selection on the test examples",
}


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    of: str,
    groups: list[dict],
    dataset: str = "unspecified",
    metric: str = "accuracy_client_mean",
    at: str = "best",
) -> Sheet:
    """The table; its numbers have one row per federation and group.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.
      of: label of the method.
      groups: of each the "title", the "labels" among which the best is looked for, and "gain", the
        published metrics "<gain>_min" and "<gain>_max" of the exhibit's own published numbers.
      dataset: of the published ranges.
      metric: of `fedlib.exhibits.comparisons.METRICS`.
      at: one of `WHEN`.

    Raises:
      ConfigError: for another `metric` or `at`.
      DataError: if a federation lacks the method, or has nothing of a group.
    """
    for name, value, known in (("metric", metric, ways.METRICS), ("at", at, WHEN)):
        if value not in known:
            raise ConfigError(f"{name} must be {' or '.join(known)}, got {value!r}")
    means = _means(exhibit, metrics, metric, at)
    rows = [
        _gain(exhibit, means, federation, group, of)
        for federation in exhibit["federations"]
        for group in groups
    ]
    numbers = pd.DataFrame(rows)
    ranges = [_range(exhibit, published, dataset, of, group) for group in groups]
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=[_block(numbers, federation) for federation in exhibit["federations"]]
        + [_range_block(numbers, groups, ranges)],
        notes=[
            *notes.measured(exhibit)[:1],
            f"Gain of {exhibits.titles(exhibit)[of]} over the best of a group, in percentage "
            f"points: {ways.METRICS[metric]}, {WHEN[at]}; mean over {exhibits.seeds_text(exhibit)}."
            f" {exhibits.rounds_text(exhibit)}",
            *exhibits.published_note(exhibit, shown=not np.isnan(ranges).all()),
            *notes.particulars(exhibit),
        ],
        numbers=notes.with_scale(exhibit, numbers),
    )


def _means(exhibit: dict, metrics: pd.DataFrame, metric: str, at: str) -> pd.Series:
    """Mean over seeds of every run, by federation and label."""
    mine = exhibits.pick(exhibits.select(exhibit, metrics), metric=metric, **PRIMARY._asdict())
    return exhibits.pick(mine, at=at).groupby(["federation", "label"])["value"].mean()


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


def _range(
    exhibit: dict, published: pd.DataFrame | None, dataset: str, of: str, group: dict
) -> list[float]:
    """The smallest and the largest printed gain; NaN where there is none."""
    found = (
        printed.fractions(published, exhibit["published"], f"{group['gain']}_{end}")
        for end in ("min", "max")
    )
    return [values.get((dataset, of), np.nan) for values in found]


def _block(numbers: pd.DataFrame, federation: dict) -> Block:
    columns = [Column(x) for x in ("Over the best of", "which is", "with", "of the method", "gain")]
    rows = [
        [
            *map(Cell, (row["group"], row["title"])),
            *(Cell(percent(row[name], decimals=2)) for name in ("other", "mean")),
            Cell(points(row["gain"], 2)),
        ]
        for row in exhibits.pick(numbers, federation=federation["name"]).to_dict("records")
    ]
    return Block(federation["title"], columns, rows, num_keys=2)


def _range_block(numbers: pd.DataFrame, groups: list[dict], ranges: list[list[float]]) -> Block:
    """Smallest and largest gain of each group, as printed and here."""
    rows = []
    for group, theirs in zip(groups, ranges, strict=True):
        gains = exhibits.pick(numbers, group=group["title"])["gain"]
        ours = [gains.min(), gains.max()]
        rows.append([Cell(group["title"]), Cell(_ends(theirs)), Cell(_ends(ours))])
    columns = [Column(x) for x in ("Smallest to largest gain over", "published", "here")]
    return Block("Ranges", columns, rows)


def _ends(values: list[float]) -> str:
    if np.isnan(values).all():
        return ABSENT
    return " to ".join(points(value, 2) for value in values)
