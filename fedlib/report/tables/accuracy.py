"""The main table of a paper: published and reproduced accuracy of every run, per federation.

"All" is accuracy pooled over the test examples of the seen clients, "Bottom-10%" that of the
floor(C / 10)-th worst client. Reproduced numbers are from the last and from the best round.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedlib.report import exhibits, printed
from fedlib.report.exhibits import METRIC_TITLES
from fedlib.report.metrics import PRIMARY
from fedlib.report.tables import notes, sheets
from fedlib.report.tables.render import Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, differences, means, texts, theirs


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation, run and metric."""
    exhibit = given.exhibit
    primary = PRIMARY._asdict()
    found = given.at_moments("federation", "label", "metric", **primary)
    best_rows = exhibits.pick(given.rows, at="best", metric="accuracy", **primary)
    best_round = best_rows.groupby(["federation", "label"])["round"].mean()
    known = {metric: given.printed(metric) for metric in METRIC_TITLES}

    def of_run(federation: dict, run: dict) -> Iterator[dict]:
        where = federation["name"], run["label"]
        for metric in METRIC_TITLES:
            last, best = (found[at].loc[(*where, metric)] for at in sheets.MOMENTS)
            number = known[metric].get((federation["dataset"], run["label"]), np.nan)
            yield {
                "metric": metric,
                "published": number,
                **{name: last[name] for name in sheets.STATISTICS},
                "seeds": int(last["seeds"]),
                **{f"best_{name}": best[name] for name in sheets.STATISTICS},
                "best_round_mean": best_round[where],
                "difference": printed.off(best["mean"], number),
            }

    numbers = given.numbers(of_run)
    return given.sheet(
        numbers,
        given.blocks(numbers, _columns),
        notes.measured(exhibit),
        "All: right predictions over all test examples of the clients that train. Bottom-10%: "
        "accuracy of the floor(C/10)-th worst of C clients, at least the worst.",
        f"Last: after the last round. {notes.BEST}",
        "Difference: reproduced at the best round minus published, in percentage points. "
        + sheets.HIGHEST,
        *exhibits.published_note(exhibit, shown=sheets.is_compared(numbers)),
        *_unpublished(exhibit, numbers),
    )


def _columns(mine: pd.DataFrame) -> Columns:
    """Published and reproduced numbers of each metric, the latter at both moments."""
    parts = {group: exhibits.pick(mine, metric=m) for m, group in METRIC_TITLES.items()}
    first = next(iter(parts.values()))
    yield Column("Method"), texts(first["title"])
    for group, part in parts.items():
        yield Column("published", group), theirs(part, decimals=1)
        yield Column("last", group), means(part)
        yield Column("best", group), means(part, "best_")
        yield Column("difference", group), differences(part)
    yield Column("Seeds"), texts(first["seeds"])


def _unpublished(exhibit: dict, numbers: pd.DataFrame) -> list[str]:
    """Notes of runs without a published number; none if all lack one, which another note says."""
    if numbers["published"].isna().all():
        return []
    where: dict[str, list[str]] = {}  # titles of the runs, and of the federations
    for federation in exhibit["federations"]:
        mine = exhibits.pick(numbers, federation=federation["name"])
        known = mine["published"].notna().groupby(mine["title"], sort=False).any()
        if not known.all():
            runs = ", ".join(known.index[~known]) if known.any() else "all methods"
            where.setdefault(runs, []).append(federation["title"])
    return [f"No published number: {runs} on {', '.join(on)}." for runs, on in where.items()]
