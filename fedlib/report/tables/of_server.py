"""Grids of a server: the size of its model, and weights that it learned."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.metrics import PARAMETERS, TRAFFIC, summary
from fedlib.report.tables import grid, notes
from fedlib.report.tables.cost import quantity
from fedlib.report.tables.render import ABSENT, Column, Sheet, with_spreads
from fedlib.report.tables.sheets import STATISTICS, Columns, TableInputs, beside, texts

NEEDED = (PARAMETERS, "bytes_up", "bytes_down", "client_rounds")
BYTES = 4  # of a number
UNITS = {"millions": 1e6, "billions": 1e9}  # suffixes of the names of published metrics
SIZE = (
    "Parameters: numbers that are trained of the model that the server keeps, gate and noise "
    "network included, running statistics of batch normalisation not. Sent: numbers that the "
    "clients of a round send up, and are sent down, all together; running statistics included."
)
ALPHA = "alpha"  # as a metric, a hyper-parameter and a published metric
RATE = "alpha_lr_scale"  # hyper-parameter: alpha's learning rate over that of the server's solver
LEARNED = (
    "Learned: in the last round at which it was written down. Rate: of its solver, of which a step "
    "of Adam is about as long; so alpha moves no further than rate times steps."
)


def build(given: TableInputs) -> Sheet:
    """The table, by its kind.

    Raises:
      DataError: see the kinds.
    """
    kinds = {one.__name__: one for one in (server_size, learned_alpha)}
    return kinds[given.kind.kind](given)


def server_size(given: TableInputs) -> Sheet:
    """Size of the server's model and numbers sent; its numbers have one row per federation and run.

    Published metrics are "parameters_millions" and "sent_millions", or the same with "billions".

    Raises:
      DataError: if a run lacks one of the numbers.
    """
    last = exhibits.pick(given.rows, at="last", **TRAFFIC._asdict())
    means = last.pivot_table("value", ["federation", "label"], "metric", aggfunc="mean")
    theirs = {
        f"published_{name}": {
            where: value * factor
            for unit, factor in UNITS.items()
            for where, value in given.printed(f"{name}_{unit}").items()
        }
        for name in ("parameters", "sent")
    }

    def of_run(federation: dict, run: dict) -> Iterator[dict]:
        key = (federation["dataset"], run["label"])
        size = _size(means, federation["name"], run)
        said = {name: known.get(key, np.nan) for name, known in theirs.items()}
        seeds = {"seeds": len(given.exhibit["seeds"])}
        yield size | said | seeds | {"block": federation["title"]}

    numbers = given.numbers(of_run)
    compared = bool(numbers["published_parameters"].notna().any())
    return grid.sheet(given, numbers, _sizes, SIZE, compared=compared)


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


def _sizes(mine: pd.DataFrame) -> Columns:
    """A row per run; published numbers where there are any."""
    compared = bool(mine["published_parameters"].notna().any())
    cells = {name: texts(map(quantity, mine[name])) for name in mine.columns[4:-2]}
    yield Column("Method"), texts(mine["title"])
    for title, theirs, ours in (
        ("Parameters at the server", "published_parameters", "parameters"),
        ("Sent up in a round", "published_sent", "sent_up"),
    ):
        yield from beside(title, cells[theirs], {"here": cells[ours]}, compared=compared)
    yield Column("Sent down in a round"), cells["sent_down"]


def learned_alpha(given: TableInputs) -> Sheet:
    """The weight of the routed experts; its numbers have one row per federation and run.

    Raises:
      DataError: if a run did not record its alpha.
    """
    exhibit = given.exhibit
    theirs = given.printed(ALPHA)

    def of_run(federation: dict, run: dict) -> Iterator[dict]:
        alphas = given.recorded(run, ALPHA)
        last = alphas[alphas["round"] == alphas["round"].max()]
        found = summary(last["value"])
        yield {
            "data": federation["title"],
            "start": exhibits.setting(ALPHA, run),
            "rate": run["params"].get(RATE, 1.0) * run["params"]["server"]["lr"],
            "published": theirs.get((federation["dataset"], run["label"]), np.nan),
            **{name: found[name] for name in STATISTICS},
            "round": int(last["round"].iloc[0]),
            "seeds": len(exhibit["seeds"]),
            "block": "",
        }

    numbers = given.numbers(of_run)
    return grid.sheet(
        given,
        numbers,
        _alphas,
        f"Plain numbers; {exhibits.seeds_text(exhibit)}: {notes.spread(exhibit)}. "
        f"{exhibits.rounds_text(exhibit)}",
        LEARNED,
        num_keys=2,
    )


def _alphas(mine: pd.DataFrame) -> Columns:
    """A row per federation and run."""
    yield Column("Data"), texts(mine["data"])
    yield Column("Method"), texts(mine["title"])
    yield Column("start"), texts(f"{value:.2g}" for value in mine["start"])
    yield Column("rate"), texts(f"{value:.0e}".replace("e-0", "e-") for value in mine["rate"])
    written = (ABSENT if np.isnan(value) else f"{value:.2f}" for value in mine["published"])
    yield Column("published"), texts(written)
    yield Column("learned"), texts(with_spreads(mine, "{:.3f}".format))
