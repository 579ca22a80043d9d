"""Lead of a method over each other one on the same clients, with intervals over clients.

Intervals of other tables are over seeds; these can be computed from one training.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedlib.errors import DataError
from fedlib.report import comparisons, exhibits, intervals
from fedlib.report.intervals import INTERVAL_CLIENTS, Interval
from fedlib.report.metrics import PRIMARY
from fedlib.report.tables import sheets
from fedlib.report.tables.render import ABSENT, Cell, Column, Sheet, percent, points
from fedlib.report.tables.sheets import Columns, TableInputs, texts
from fedlib.spec.exhibits import Protocol

SHOWN = {comparisons.MEAN: "mean of clients", "accuracy": "all examples"}
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

    def of_run(federation: dict, run: dict) -> Iterator[dict]:
        best = (federation["name"], kind.of, shown[0].name)
        if best not in found:
            raise DataError(f"{federation['name']} has no run of {name} that clients test")
        for protocol in shown:
            key = (federation["name"], run["label"], protocol.name)
            if key in found:
                about = {"protocol": protocol.name, "called": protocol.title}
                numbers = _compared(found[best], None if key == best else found[key])
                yield from (about | row for row in numbers)

    numbers, num_keys = given.numbers(of_run), 2 if kind.protocols else 1
    return given.sheet(
        numbers.drop(columns="called"),
        [
            sheets.block(heading, _shown(part, name, num_keys), num_keys)
            for federation in exhibit["federations"]
            for heading, part in _parts(federation, numbers)
        ],
        f"Percent, on the test examples of clients that train, after the last round; means over "
        f"{exhibits.seeds_text(exhibit)}. {exhibits.rounds_text(exhibit)}",
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
    yield Column(f"Accuracy {OVER}"), _accuracies(part)
    yield Column(f"{name} ahead by {OVER}"), _differences(part)
    yield Column("p"), _probabilities(part)
    yield Column("Clients"), texts(part["num_clients"])


def _parts(federation: dict, numbers: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Headings and numbers by metric; only the first metric if all agree."""
    mine = exhibits.pick(numbers, federation=federation["name"])
    parts = {metric: exhibits.pick(mine, metric=metric) for metric in SHOWN}
    alike = np.allclose(*(part["mean"] for part in parts.values()), rtol=0, atol=1e-9)
    for metric, title in [*SHOWN.items()][: 1 if alike else None]:
        yield f"{federation['title']}: {title}", parts[metric]


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
            **{"mean": mean.mean, "clients_low": mean.low, "clients_high": mean.high},
            "difference": ahead.mean,
            **{"difference_clients_low": ahead.low, "difference_clients_high": ahead.high},
            "p": ahead.p,
            "num_clients": len(best),
        }


def _accuracies(part: pd.DataFrame) -> list[Cell]:
    """Accuracies with their intervals."""
    return texts(
        f"{percent(mean)} {intervals.ends(low, high, percent)}".strip()
        for mean, low, high in _columns(part, "mean", "clients_low", "clients_high")
    )


def _differences(part: pd.DataFrame) -> list[Cell]:
    """Differences with their intervals, bold if `CERTAIN`."""
    names = ("difference", "difference_clients_low", "difference_clients_high", "p")
    return [
        Cell(
            f"{points(mean)} {intervals.ends(low, high, points)}".strip(),
            bold=bool(p * part["p"].count() < CERTAIN),
        )
        for mean, low, high, p in _columns(part, *names)
    ]


def _probabilities(part: pd.DataFrame) -> list[Cell]:
    return [
        Cell(ABSENT)
        if np.isnan(p)
        else Cell(intervals.p_text(p).removeprefix("= "), value=float(p))
        for p in part["p"]
    ]


def _columns(part: pd.DataFrame, *names: str) -> Iterator[tuple[float, ...]]:
    return part[[*names]].itertuples(index=False, name=None)
