"""Accuracy of the clients' predictors, and the bytes sent for it: published beside reproduced.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, table 1;
section 8 of FedMix's README has its rule of counting traffic.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedlib.errors import DataError
from fedlib.report import exhibits, notes, printed
from fedlib.report.comparisons import MEAN
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.report.metrics.seeds import summary
from fedlib.report.tables import sheets
from fedlib.report.tables.cost import quantity
from fedlib.report.tables.render import Column, Sheet, best_cells, percent, points
from fedlib.report.tables.sheets import Columns, TableInputs, beside, texts
from fedlib.spec import Data, ExhibitSpec, Run

PUBLISHED = {"published": MEAN, "published_rounds": "rounds", "published_gb": "gb"}
GIB = 2.0**30  # bytes, which the paper calls GB


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation and run.

    Published numbers are under the exhibit's `published` and the labels of the runs: the metrics
    "accuracy_client_mean", "rounds", and "gb", of 2^30 bytes.

    Raises:
      DataError: if a run was not evaluated during training.
    """
    exhibit, kind = given.exhibit, given.kind
    numbers = _numbers(given, kind.averaged or {})
    compared = sheets.is_compared(numbers)
    return given.sheet(
        numbers,
        given.blocks(numbers, _columns),
        notes.measurement(exhibit),
        "Accuracy: mean accuracy of the clients, on the test examples of the clients that "
        f"train, {_describe_averages(exhibit, kind.averaged or {})}. {sheets.HIGHEST}",
        "Sent: both ways, all clients of the run together, four bytes per number"
        + ("; GiB, of 2^30 bytes, are what the paper calls GB." if compared else ".")
        + " Message: numbers that a client receives or sends in a round, on average. k, M, G, T: "
        "thousands, millions, ...",
        *(_comparison_notes(exhibit) if compared else []),
        *notes.comparison(exhibit, shown=compared),
    )


def _numbers(given: TableInputs, averaged: dict[str, int]) -> pd.DataFrame:
    """All numbers of the table -> one row per federation and run."""
    curves = exhibits.pick(given.rows, at="round", metric=MEAN, **PRIMARY._asdict())
    paper = {ours: given.paper_numbers(theirs) for ours, theirs in PUBLISHED.items()}

    def of_run(federation: Data, run: Run) -> Iterator[dict]:
        where = federation.dataset, run.label
        curve = exhibits.of_run(curves, run)
        if curve.empty:
            raise DataError(f"{exhibits.name(run)} was not evaluated during training")
        yield {
            **_accuracy(curve, averaged.get(federation.name, 1)),
            **_traffic(given.costs.loc[federation.name, run.label], curve),
            **{name: known.get(where, np.nan) for name, known in paper.items()},
            printed.ROW: paper["published"].get(where, printed.NONE).row,
            "seeds": len(given.exhibit.seeds),
        }

    numbers = given.numbers(of_run)
    numbers["difference"] = [*map(printed.off, numbers["mean"], numbers["published"])]
    messages = numbers["message"] * numbers["cohort"] * numbers["published_rounds"]
    numbers["gb_by_rule"] = 2 * 4 * messages / GIB  # floats of 4 bytes, down and up
    numbers["gb_ratio"] = numbers["gb_by_rule"] / numbers["published_gb"]
    return numbers.assign(metric=MEAN, split=PRIMARY.split)


def _accuracy(curve: pd.DataFrame, rounds: int) -> dict[str, float]:
    """Mean over the evaluations of each seed in the last rounds, then statistics over seeds."""
    kept = sheets.in_last_rounds(curve, rounds)
    found = summary(kept.mean())
    statistics = {name: found[name] for name in sheets.STATISTICS}
    return {**statistics, "evaluations": int(kept.count().max())}


def _traffic(means: pd.Series, curve: pd.DataFrame) -> dict[str, float]:
    """Rounds done, bytes sent, size of a message and of the cohort, means over seeds."""
    rounds = float(curve.groupby("seed")["round"].max().mean())
    messages = 2 * means["client_rounds"]
    return {
        "rounds": rounds,
        "gb": means["bytes"] / GIB,
        "message": means["bytes"] / 4 / messages if messages else 0.0,
        "cohort": means["client_rounds"] / rounds if rounds else 0.0,
    }


def _columns(mine: pd.DataFrame) -> Columns:
    """A row per run; without published numbers only reproduced ones."""
    compared = sheets.is_compared(mine)
    yield Column("Method"), texts(mine["title"])
    numbers = mine["published"].tolist()
    theirs = best_cells(numbers, [percent(value, decimals=2) for value in numbers], 2)
    difference = texts(map(points, mine["difference"]))
    ours = {"reproduced": sheets.means(mine)}
    yield from beside("Accuracy", theirs, ours, difference, compared=compared)
    rounds = texts(mine["published_rounds"], ".0f"), {"reproduced": texts(mine["rounds"], ".0f")}
    yield from beside("Rounds", *rounds, compared=compared)
    if compared:
        yield Column("published", "Sent (GiB)"), texts(mine["published_gb"], "g")
        yield Column("by rule", "Sent (GiB)"), texts(map(quantity, mine["gb_by_rule"]))
        yield Column("reproduced", "Sent (GiB)"), texts(map(quantity, mine["gb"]))
    else:
        yield Column("Sent (bytes)"), texts(map(quantity, mine["gb"] * GIB))
    yield Column("Message"), texts(map(quantity, mine["message"]))
    yield Column("Seeds"), texts(mine["seeds"])


def _describe_averages(exhibit: ExhibitSpec, averaged: dict[str, int]) -> str:
    """The evaluations that accuracies are means of; by default "after the last round"."""
    named = [
        f"{one.title} the mean of the evaluations in the last {averaged[one.name]} rounds"
        for one in exhibit.federations
        if one.name in averaged
    ]
    return "; ".join(["after the last round", *named])


def _comparison_notes(exhibit: ExhibitSpec) -> list[str]:
    rule = (
        f"{sheets.DIFFERENCE} By rule: 8 bytes × message × clients "
        "per round × published rounds, with message and clients of these runs."
    )
    if exhibit.scale == exhibits.PAPER_SCALE:
        return [rule]
    return [rule, f"At scale {exhibit.scale} models and rounds may be smaller than the paper's."]
