"""Lead of a method over each other one on the same clients, with intervals over clients.

Intervals of other tables are over seeds; these can be computed from one training.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from fedlib.errors import DataError
from fedlib.report import comparisons, exhibits, intervals, notes
from fedlib.report.intervals import INTERVAL_CLIENTS, Interval
from fedlib.report.metrics import PRIMARY
from fedlib.report.tables import sheets
from fedlib.report.tables.render import ABSENT, Cell, Column, Sheet, percent, points
from fedlib.report.tables.sheets import Columns, TableInputs, texts
from fedlib.spec import Data, Run
from fedlib.spec.exhibits import Protocol

SHOWN = {comparisons.MEAN: "mean of clients", "accuracy": "all examples"}
ACCURACY = ("mean", "clients_low", "clients_high")  # columns: a mean, and its interval
DIFFERENCE = ("difference", "difference_clients_low", "difference_clients_high")
CERTAIN = 0.05  # a difference is bold below this p, adjusted for all differences of a federation
OVER = "[over clients]"  # meaning of the brackets, in the heads of columns
MEANING = (
    "In brackets: the 95 % interval over clients. It is for clients drawn like these and the same "
    "trained models; what other seeds would give is not in it. Mean of clients: each counts the "
    "same. All examples: pooled, so that clients count by their test examples; left out where all "
    "have as many.",
    "p: of no difference, from both sides, by the jackknife over clients. Bold: p is below "
    f"{CERTAIN} divided by the number of rows that are compared (Bonferroni). Fewer than "
    f"{INTERVAL_CLIENTS} clients have no interval.",
)


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation, run, protocol and metric.

    A run without the protocol is left out.

    Raises:
      DataError: if a federation lacks the method that others are compared with.
    """
    exhibit, kind = given.exhibit, given.kind
    shown = comparisons.declared(kind.formed("protocols") or [Protocol(PRIMARY.protocol)])
    where = {"at": "last", "split": PRIMARY.split, "group": PRIMARY.group}
    rows = exhibits.pick(given.client_rows, **where).groupby(["federation", "label", "protocol"])
    found = {key: intervals.by_client(mine) for key, mine in rows}
    name = exhibits.titles(exhibit).get(kind.of, kind.of)
    name += f", {shown[0].title}" if kind.protocols else ""

    def of_run(federation: Data, run: Run) -> Iterator[dict]:
        best = (federation.name, kind.of, shown[0].name)
        if best not in found:
            raise DataError(f"{federation.name} has no run of {name} that clients test")
        for protocol in shown:
            key = (federation.name, run.label, protocol.name)
            if key in found:
                about = {"protocol": protocol.name, "called": protocol.title}
                numbers = _compared(found[best], None if key == best else found[key])
                yield from (about | row for row in numbers)

    numbers, num_keys = given.numbers(of_run), 2 if kind.protocols else 1
    return given.sheet(
        numbers.drop(columns="called"),
        [
            sheets.block(heading, _shown(part, name, num_keys), num_keys)
            for federation in exhibit.federations
            for heading, part in _parts(federation, numbers)
        ],
        f"Percent, on the test examples of clients that train, after the last round; means over "
        f"{notes.seeds(exhibit)}. {notes.rounds(exhibit)}",
        f"Ahead by: {name} minus the row, client by client, in percentage points, before the "
        "accuracies are rounded.",
        *MEANING,
        *comparisons.selection_note(exhibit),
    )


def _shown(part: pd.DataFrame, name: str, num_keys: int) -> Columns:
    """Columns of a block; `name` is the run that the others are compared with."""
    yield Column("Method"), texts(part["title"])
    if num_keys == 2:
        yield Column("Predicts by"), texts(part["called"])
    yield Column(f"Accuracy {OVER}"), texts(_with_ends(part, ACCURACY, percent))
    certain = part["p"] * part["p"].count() < CERTAIN
    ahead = zip(_with_ends(part, DIFFERENCE, points), certain.tolist(), strict=True)
    yield Column(f"{name} ahead by {OVER}"), [Cell(*both) for both in ahead]
    yield Column("p"), list(map(_p_cell, part["p"]))
    yield Column("Clients"), texts(part["num_clients"])


def _parts(federation: Data, numbers: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Headings and numbers by metric; only the first metric if all agree."""
    mine = exhibits.pick(numbers, federation=federation.name)
    parts = {metric: exhibits.pick(mine, metric=metric) for metric in SHOWN}
    alike = np.allclose(*(part["mean"] for part in parts.values()), rtol=0, atol=1e-9)
    for metric, title in [*SHOWN.items()][: 1 if alike else None]:
        yield f"{federation.title}: {title}", parts[metric]


def _compared(best: pd.DataFrame, other: pd.DataFrame | None) -> Iterator[dict]:
    """Accuracy and difference by each metric; without `other`, the accuracy of `best`.

    The difference is not that of the printed accuracies: it is in the middle of its interval.
    """
    for metric in SHOWN:
        pooled = metric == "accuracy"
        mean = intervals.interval(best if other is None else other, pooled)
        ahead = Interval(np.nan) if other is None else intervals.paired(best, other, pooled)
        yield {
            "metric": metric,
            **dict(zip(ACCURACY, mean, strict=False)),
            **dict(zip(DIFFERENCE, ahead, strict=False)),
            "p": ahead.p,
            "num_clients": len(best),
        }


def _with_ends(part: pd.DataFrame, names: tuple[str, ...], text: Callable) -> Iterator[str]:
    """Means with their intervals, from the three columns `names`; `text` formats a number."""
    for mean, low, high in part[[*names]].itertuples(index=False, name=None):
        yield f"{text(mean)} {intervals.ends(low, high, text)}".strip()


def _p_cell(p: float) -> Cell:
    if np.isnan(p):
        return Cell(ABSENT)
    return Cell(intervals.p_text(p).removeprefix("= "), value=float(p))
