"""Lead of a method over each other method, beside the lead that its paper claims.

A lead is the difference of two runs on one federation, seed by seed, in accuracy pooled over test
examples. A paper claims the largest lead over all other methods, or over the best one.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedlib.report import exhibits, printed
from fedlib.report.comparisons import GROUPS
from fedlib.report.metrics import PRIMARY, over_seeds
from fedlib.report.tables import notes, render, sheets
from fedlib.report.tables.render import Block, Cell, Column, Sheet
from fedlib.report.tables.sheets import STATISTICS, TableInputs, is_compared, texts
from fedlib.spec.exhibits import one_of

WHEN = {"last": "after the last round", "best": "at each run's best round on the test data"}
OVER = {"best": "idxmin", "any": "idxmax"}  # the lead on a federation that a claim is about
IDENTITY = ("federation", "dataset", "label", "title")


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation and other run, and one for the claim.

    A run is left out if it or the leading method has no default protocol for the group.

    Raises:
      ConfigError: for a claim whose `over` is not in `OVER`.
    """
    exhibit, kind, of = given.exhibit, given.kind, given.kind.of
    one_of(OVER, kind.claim["over"], "over")
    where = {"group": kind.group, "at": kind.at, "metric": "accuracy"}
    mine = exhibits.pick(given.rows, **PRIMARY._asdict() | where)
    numbers = _numbers(given, _leads(mine, of))
    numbers = pd.concat([numbers, _claimed(given, numbers)], ignore_index=True)
    return given.sheet(
        numbers,
        [*_blocks(exhibit, numbers.iloc[:-1]), _claim_block(exhibit, numbers.iloc[-1])],
        f"Accuracy of {exhibits.titles(exhibit).get(of, of)} minus that of the row, pooled "
        f"over the test examples of the {GROUPS[kind.group]}, {WHEN[kind.at]}, in percentage "
        f"points; {exhibits.seeds_text(exhibit)}: {notes.spread(exhibit)}. "
        f"{exhibits.rounds_text(exhibit)}",
        *exhibits.published_note(exhibit, shown=is_compared(numbers)),
    )


def _leads(metrics: pd.DataFrame, of: str) -> pd.DataFrame:
    """`over_seeds` of the accuracy of `of` minus that of each other run, on the same seeds.

    The mean is the difference of the means as printed, see `fedlib.report.printed.difference`.
    """
    key, run = ["federation", "seed"], ["federation", "label"]
    ahead = exhibits.pick(metrics, label=of).set_index(key)["value"]
    others = metrics[metrics["label"] != of].set_index(key)
    paired = others.assign(ahead=ahead.reindex(others.index), behind=others["value"])
    paired = paired.dropna(subset="ahead").reset_index()
    found = over_seeds(paired.assign(value=paired["ahead"] - paired["behind"]), run).set_index(run)
    means = paired.groupby(run)[["ahead", "behind"]].mean().reindex(found.index)
    pairs = zip(means["ahead"], means["behind"], strict=True)
    return found.assign(mean=[printed.difference(*pair) for pair in pairs])


def _numbers(given: TableInputs, leads: pd.DataFrame) -> pd.DataFrame:
    """One row per federation and other run that has a lead."""
    theirs = given.printed()

    def of_run(federation: dict, run: dict) -> Iterator[dict]:
        where = (federation["name"], run["label"])
        if where not in leads.index:
            return
        ahead, behind = (
            theirs.get((federation["dataset"], x), np.nan) for x in (given.kind.of, where[1])
        )
        yield {
            "claim": "",
            "published": ahead - behind,
            **sheets.statistics(leads, where),
            "seeds": int(leads.loc[where, "seeds"]),
        }

    columns = [*IDENTITY, "claim", "published", *STATISTICS, "seeds"]
    return given.numbers(of_run).reindex(columns=columns)


def _claimed(given: TableInputs, numbers: pd.DataFrame) -> pd.DataFrame:
    """The claim as printed, beside the largest lead of its kind and the other method: one row."""
    claim = given.kind.claim
    values = printed.fractions(given.published, claim["exhibit"], claim["metric"])
    row = dict.fromkeys(IDENTITY, "")
    known = numbers.dropna(subset="mean")
    if len(known):
        chosen = known.groupby("federation")["mean"].agg(OVER[claim["over"]])
        row = known.loc[known.loc[chosen, "mean"].idxmax()].to_dict()
    row["published"] = values.get((claim["dataset"], given.kind.of), np.nan)
    return pd.DataFrame([row | {"claim": claim["title"]}], columns=numbers.columns)


def _blocks(exhibit: dict, numbers: pd.DataFrame) -> Iterator[Block]:
    """A block for each federation with a lead."""
    columns = [*map(Column, ("Ahead of", "published", "here"))]
    for federation in exhibit["federations"]:
        mine = exhibits.pick(numbers, federation=federation["name"]).to_dict("records")
        if mine:
            rows = [[Cell(row["title"]), *_values(row)] for row in mine]
            yield Block(federation["title"], columns, rows)


def _claim_block(exhibit: dict, row: pd.Series) -> Block:
    where = {federation["name"]: federation["title"] for federation in exhibit["federations"]}
    found = f"over {row['title']} on {where[row['federation']]}" if row["title"] else render.ABSENT
    columns = [*map(Column, ("Claim", "Lead over the best baseline", "published", "here"))]
    return Block("Claim", columns, [[*texts((row["claim"], found)), *_values(row)]], num_keys=2)


def _values(row: dict | pd.Series) -> list[Cell]:
    return [
        Cell(render.points(row["published"])),
        Cell(render.with_spread(dict(row), "ci95", render.points, render.percent)),
    ]
