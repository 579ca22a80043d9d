"""The main table of a paper: published and reproduced accuracy of every run, per federation.

"All" is the accuracy pooled over the test examples of the seen clients, "Bottom-10%" that of the
floor(C / 10)-th worst client. Reproduced numbers are given at the last round and at the best one.
"""

import numpy as np
import pandas as pd

from fedlib.exhibits import published as printed
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.metrics import PRIMARY, over_seeds
from fedlib.exhibits.selection import METRIC_TITLES
from fedlib.tables import notes
from fedlib.tables.render import Block, Cell, Column, Sheet, best_cells, percent, percents, points
from fedlib.tables.summary import STATISTICS, identity


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
) -> Sheet:
    """The table; its numbers have one row per federation, run and metric."""
    numbers = _numbers(exhibit, exhibits.select(exhibit, metrics), published)
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=[_block(federation, numbers) for federation in exhibit["federations"]],
        notes=[
            *notes.measured(exhibit),
            notes.ALL_AND_BOTTOM,
            notes.LAST_AND_BEST,
            "Difference: reproduced at the best round minus published, in percentage points. "
            "Bold: highest of the column.",
            *exhibits.published_note(exhibit, shown=bool(numbers["published"].notna().any())),
            *_unpublished(exhibit, numbers),
            *notes.particulars(exhibit),
        ],
        numbers=numbers,
    )


def _numbers(exhibit: dict, metrics: pd.DataFrame, published: pd.DataFrame | None) -> pd.DataFrame:
    """Everything the table shows, as fractions -> one row per federation, run and metric."""
    shown = exhibits.pick(metrics, **PRIMARY._asdict())
    shown = shown[shown["metric"].isin(METRIC_TITLES) & shown["at"].isin(["last", "best"])]
    key = ["federation", "label", "metric", "at"]
    summary = over_seeds(shown, key).set_index(key)
    best_round = shown[shown["at"] == "best"].groupby(key[:2])["round"]
    reference = {m: printed.fractions(published, exhibit["published"], m) for m in METRIC_TITLES}
    rows = []
    for federation in exhibit["federations"]:
        for run in exhibits.runs_of(exhibit, federation["name"]):
            for metric in METRIC_TITLES:
                where = (federation["name"], run["label"])
                last, best = (summary.loc[(*where, metric, at)] for at in ("last", "best"))
                number = reference[metric].get((federation["dataset"], run["label"]), np.nan)
                rows.append(
                    {
                        **identity(federation, run),
                        "metric": metric,
                        "published": number,
                        **{name: last[name] for name in STATISTICS},
                        "seeds": int(last["seeds"]),
                        **{f"best_{name}": best[name] for name in STATISTICS},
                        "best_round_mean": best_round.get_group(where).mean(),
                        "difference": printed.off(best["mean"], number),
                    }
                )
    return notes.with_scale(exhibit, pd.DataFrame(rows))


def _unpublished(exhibit: dict, numbers: pd.DataFrame) -> list[str]:
    """Which runs lack a published number; nothing if all do, as another note then says so."""
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


def _block(federation: dict, numbers: pd.DataFrame) -> Block:
    mine = exhibits.pick(numbers, federation=federation["name"])
    parts = [exhibits.pick(mine, metric=metric) for metric in METRIC_TITLES]
    columns = [Column("Method")]
    cells = [[Cell(title) for title in parts[0]["title"]]]
    for part, group in zip(parts, METRIC_TITLES.values(), strict=True):
        columns += [Column(name, group) for name in ("published", "last", "best", "difference")]
        cells += [
            best_cells(part["published"].tolist(), list(map(percent, part["published"]))),
            best_cells(part["mean"].tolist(), percents(part)),
            best_cells(part["best_mean"].tolist(), percents(part, "best_")),
            [Cell(points(value)) for value in part["difference"]],
        ]
    columns.append(Column("Seeds"))
    cells.append([Cell(str(seeds)) for seeds in parts[0]["seeds"]])
    return Block(federation["title"], columns, [list(row) for row in zip(*cells, strict=True)])
