"""Size of the server's model, and numbers sent per round, beside published ones."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.metrics import PARAMETERS, TRAFFIC
from fedlib.report.tables.cost import quantity
from fedlib.report.tables.render import Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, texts

NEEDED = (PARAMETERS, "bytes_up", "bytes_down", "client_rounds")
BYTES = 4  # of a number
UNITS = {"millions": 1e6, "billions": 1e9}  # suffixes of the names of published metrics
MEANING = (
    "Parameters: numbers that are trained of the model that the server keeps, gate and noise "
    "network included, running statistics of batch normalisation not. Sent: numbers that the "
    "clients of a round send up, and are sent down, all together; running statistics included."
)


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation and run.

    Published metrics are "parameters_millions" and "sent_millions", or the same with "billions".

    Raises:
      DataError: if a run lacks one of the numbers.
    """
    exhibit = given.exhibit
    last = exhibits.pick(given.rows, at="last", **TRAFFIC._asdict())
    means = last.pivot_table("value", ["federation", "label"], "metric", aggfunc="mean")
    theirs = {
        name: {
            where: value * factor
            for unit, factor in UNITS.items()
            for where, value in given.printed(f"{name}_{unit}").items()
        }
        for name in ("parameters", "sent")
    }

    def of_run(federation: dict, run: dict) -> Iterator[dict]:
        key = (federation["dataset"], run["label"])
        size = _size(means, federation["name"], run)
        said = {f"published_{name}": theirs[name].get(key, np.nan) for name in theirs}
        yield size | said | {"seeds": len(exhibit["seeds"])}

    numbers = given.numbers(of_run)
    return given.sheet(
        numbers,
        given.blocks(numbers, _columns),
        MEANING,
        *exhibits.published_note(exhibit, shown=_is_compared(numbers)),
    )


def _size(means: pd.DataFrame, federation: str, run: dict) -> dict[str, float]:
    """Parameters at the server, and numbers sent per round, of one run."""
    found = means.reindex(columns=list(NEEDED)).loc[federation, run["label"]]
    if found.isna().any():
        raise DataError(
            f"{exhibits.name(run)} has no {found.isna().idxmax()} among its metrics; run its "
            "evaluation and the metrics stage again"
        )
    sent = {name: found[f"bytes_{name}"] / BYTES / run["rounds"] for name in ("up", "down")}
    return {"parameters": found[PARAMETERS], "sent_up": sent["up"], "sent_down": sent["down"]}


def _is_compared(numbers: pd.DataFrame) -> bool:
    return bool(numbers["published_parameters"].notna().any())


def _columns(mine: pd.DataFrame) -> Columns:
    """A row per run; published numbers where there are any."""
    yield Column("Method"), texts(mine["title"])
    for title, theirs, ours in (
        ("Parameters at the server", "published_parameters", "parameters"),
        ("Sent up in a round", "published_sent", "sent_up"),
    ):
        here = texts(map(quantity, mine[ours]))
        if _is_compared(mine):
            yield Column("published", title), texts(map(quantity, mine[theirs]))
            yield Column("here", title), here
        else:
            yield Column(title), here
    yield Column("Sent down in a round"), texts(map(quantity, mine["sent_down"]))
