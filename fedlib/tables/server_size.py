"""How large the server's model is, and how many numbers a round sends: beside what is printed."""

import numpy as np
import pandas as pd

from fedlib.errors import DataError
from fedlib.exhibits import published as printed
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.metrics import PARAMETERS, TRAFFIC
from fedlib.tables import notes
from fedlib.tables.cost import quantity
from fedlib.tables.render import Block, Cell, Column, Sheet
from fedlib.tables.summary import identity

NEEDED = (PARAMETERS, "bytes_up", "bytes_down", "client_rounds")
BYTES = 4  # of a number
UNITS = {"millions": 1e6, "billions": 1e9}  # how the names of published metrics end
MEANING = (
    "Parameters: numbers that are trained of the model that the server keeps, gate and noise "
    "network included, running statistics of batch normalisation not. Sent: numbers that the "
    "clients of a round send up, and are sent down, all together; running statistics included."
)


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
) -> Sheet:
    """The table; its numbers have one row per federation and run.

    Published metrics are "parameters_millions" and "sent_millions", or end in "billions".

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.

    Raises:
      DataError: if a run lacks one of the numbers.
    """
    last = exhibits.pick(exhibits.select(exhibit, metrics), at="last", **TRAFFIC._asdict())
    means = last.pivot_table("value", ["federation", "label"], "metric", aggfunc="mean")
    theirs = {
        name: {
            where: value * factor
            for unit, factor in UNITS.items()
            for where, value in printed.fractions(
                published, exhibit["published"], f"{name}_{unit}"
            ).items()
        }
        for name in ("parameters", "sent")
    }
    rows = []
    for federation in exhibit["federations"]:
        for run in exhibits.runs_of(exhibit, federation["name"]):
            key, about = (federation["dataset"], run["label"]), identity(federation, run)
            size = _size(means, federation["name"], run)
            said = {f"published_{name}": theirs[name].get(key, np.nan) for name in theirs}
            rows.append(about | size | said | {"seeds": len(exhibit["seeds"])})
    numbers = pd.DataFrame(rows)
    compared = bool(numbers["published_parameters"].notna().any())
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=[_block(federation, numbers) for federation in exhibit["federations"]],
        notes=[
            exhibits.scale_text(exhibit),
            MEANING,
            *exhibits.published_note(exhibit, shown=compared),
            *notes.particulars(exhibit),
        ],
        numbers=notes.with_scale(exhibit, numbers),
    )


def _size(means: pd.DataFrame, federation: str, run: dict) -> dict[str, float]:
    """Parameters at the server, and numbers that a round sends, of one run."""
    found = means.reindex(columns=list(NEEDED)).loc[federation, run["label"]]
    missing = [name for name in NEEDED if np.isnan(found[name])]
    if missing:
        raise DataError(
            f"{federation}/{run['label']} has no {missing[0]} among its metrics; run its "
            "evaluation and the metrics stage again"
        )
    sent = {name: found[f"bytes_{name}"] / BYTES / run["rounds"] for name in ("up", "down")}
    return {"parameters": found[PARAMETERS], "sent_up": sent["up"], "sent_down": sent["down"]}


def _block(federation: dict, numbers: pd.DataFrame) -> Block:
    """A row per run; published numbers where there are any."""
    mine = exhibits.pick(numbers, federation=federation["name"])
    columns = [(Column("Method"), mine["title"])]
    compared = mine["published_parameters"].notna().any()
    for group, ours in (("Parameters at the server", "parameters"), ("Sent up in a round", "sent")):
        if compared:
            told = map(quantity, mine[f"published_{ours}"])
            columns.append((Column("published", group), told))
        values = mine["parameters" if ours == "parameters" else "sent_up"]
        columns.append((Column("here" if compared else group, group if compared else ""),
                        map(quantity, values)))  # fmt: skip
    columns.append((Column("Sent down in a round"), map(quantity, mine["sent_down"])))
    cells = [list(map(Cell, texts)) for _, texts in columns]
    return Block(
        federation["title"],
        [column for column, _ in columns],
        [list(row) for row in zip(*cells, strict=True)],
    )
