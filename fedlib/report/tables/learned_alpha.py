"""The learned alpha, the weight of the routed experts: here and as published."""

import numpy as np
import pandas as pd

from fedlib.report import exhibits
from fedlib.report.metrics import summary
from fedlib.report.tables import notes, sheets
from fedlib.report.tables.render import ABSENT, Column, Sheet, with_spreads
from fedlib.report.tables.sheets import Columns, TableInputs, block, texts

ALPHA = "alpha"  # as a metric, a hyper-parameter and a published metric
RATE = "alpha_lr_scale"  # hyper-parameter: alpha's learning rate over that of the server's solver
EXPLAINED = (
    "Learned: in the last round at which it was written down. Rate: of its solver, of which a step "
    "of Adam is about as long; so alpha moves no further than rate times steps."
)


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation and run.

    Raises:
      DataError: if a run did not record its alpha.
    """
    exhibit = given.exhibit
    theirs, num_seeds = given.printed(ALPHA), len(exhibit["seeds"])
    numbers = pd.DataFrame(
        _row(federation, run, given.recorded(run, ALPHA), theirs, num_seeds)
        for federation, run in given.runs
    )
    compared = sheets.is_compared(numbers)
    return given.sheet(
        numbers,
        [block("", _columns(numbers, compared), num_keys=2)],
        f"Plain numbers; {exhibits.seeds_text(exhibit)}: {notes.spread(exhibit)}. "
        f"{exhibits.rounds_text(exhibit)}",
        EXPLAINED,
        *exhibits.published_note(exhibit, shown=compared),
    )


def _row(federation: dict, run: dict, alphas: pd.DataFrame, theirs: dict, num_seeds: int) -> dict:
    """The numbers of one run's alpha."""
    last = alphas[alphas["round"] == alphas["round"].max()]
    found = summary(last["value"])
    rate = run["params"].get(RATE, 1.0) * run["params"]["server"]["lr"]
    return {
        **sheets.identity(federation, run),
        "data": federation["title"],
        "start": exhibits.setting(ALPHA, run),
        "rate": rate,
        "published": theirs.get((federation["dataset"], run["label"]), np.nan),
        **{name: found[name] for name in sheets.STATISTICS},
        "round": int(last["round"].iloc[0]),
        "seeds": num_seeds,
    }


def _columns(numbers: pd.DataFrame, compared: bool) -> Columns:
    """A row per federation and run."""
    yield Column("Data"), texts(numbers["data"])
    yield Column("Method"), texts(numbers["title"])
    yield Column("start"), texts(f"{value:.2g}" for value in numbers["start"])
    rates = (f"{value:.0e}".replace("e-0", "e-") for value in numbers["rate"])
    yield Column("rate"), texts(rates)
    if compared:
        written = (ABSENT if np.isnan(value) else f"{value:.2f}" for value in numbers["published"])
        yield Column("published"), texts(written)
    yield Column("learned"), texts(with_spreads(numbers, "{:.3f}".format))
