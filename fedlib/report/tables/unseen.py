"""Accuracy of clients that took no part in training, beside that of clients that did.

A method may have several ways to serve an unseen client (protocols) and reports "default". A method
without a default has N/A there.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedlib.report import exhibits, printed
from fedlib.report.metrics import PRIMARY
from fedlib.report.tables import notes
from fedlib.report.tables.render import NOT_APPLICABLE, Cell, Column, Sheet, percents, points
from fedlib.report.tables.sheets import Columns, TableInputs, means, statistics, texts

DEFAULT = PRIMARY.protocol
OWN = "the method's own"  # title of the default protocol


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation, run and protocol of unseen clients."""
    exhibit = given.exhibit
    key = ("federation", "label", "group", "protocol", "metric")
    found = given.over_seeds(*key, at="last", split=PRIMARY.split)

    def of_run(federation: dict, run: dict) -> Iterator[dict]:
        where = (federation["name"], run["label"])
        for protocol in _protocols(found, where):
            unseen = (*where, "unseen", protocol)
            row = {
                "protocol": protocol,
                **statistics(found, (*where, "seen", DEFAULT, "accuracy"), "seen_"),
                **statistics(found, (*unseen, "accuracy"), "unseen_"),
                **statistics(found, (*unseen, "bottom10"), "unseen_bottom10_"),
            }
            gap = printed.difference(row["unseen_mean"], row["seen_mean"])
            yield row | {"gap": gap, "seeds": len(exhibit["seeds"])}

    numbers = given.numbers(of_run)
    return given.sheet(
        numbers,
        given.blocks(numbers, _columns, num_keys=2),
        notes.measured(exhibit),
        "Seen: the clients that train, by the method's own protocol. Unseen: clients that took "
        "no part in training. All and Bottom-10% as in the accuracy table, on test examples.",
        f"Protocol: how an unseen client gets its predictor; {OWN} is the one it reports, "
        f"{NOT_APPLICABLE} where it has none. Gap: All of unseen minus seen, in percentage "
        "points.",
        _clients_note(exhibit, given.client_rows),
    )


def _protocols(found: pd.DataFrame, where: tuple[str, str]) -> list[str]:
    """The default protocol, even if the run lacks it, then the run's other protocols."""
    names = {key[3] for key in found.index if key[:3] == (*where, "unseen")}
    return [DEFAULT, *sorted(names - {DEFAULT})]


def _columns(mine: pd.DataFrame) -> Columns:
    yield Column("Method"), texts(mine["title"])
    names = (OWN if x == DEFAULT else x.replace("_", " ") for x in mine["protocol"])
    yield Column("Protocol"), texts(names)
    yield Column("All", "Seen"), texts(percents(mine, "seen_"))
    yield Column("All", "Unseen"), _cells(mine, "unseen_")
    yield Column("Bottom-10%", "Unseen"), _cells(mine, "unseen_bottom10_")
    gaps = (NOT_APPLICABLE if np.isnan(value) else points(value) for value in mine["gap"])
    yield Column("Gap"), texts(gaps)


def _cells(numbers: pd.DataFrame, prefix: str) -> list[Cell]:
    """Means over seeds, the highest bold; N/A where there is none."""
    cells = means(numbers, prefix)
    none = numbers[f"{prefix}mean"].isna()
    return [Cell(NOT_APPLICABLE) if no else cell for no, cell in zip(none, cells, strict=True)]


def _clients_note(exhibit: dict, clients: pd.DataFrame) -> str:
    parts = []
    for federation in exhibit["federations"]:
        mine = exhibits.pick(clients, federation=federation["name"], split="test")
        seen, unseen = (_clients(mine[mine["group"] == group]) for group in ("seen", "unseen"))
        parts.append(f"{seen} seen and {unseen} unseen on {federation['title']}")
    return f"Clients with test examples: {', '.join(parts)}."


def _clients(rows: pd.DataFrame) -> str:
    """Number of clients with examples; a range from fewest to most if seeds differ."""
    by_seed = rows[rows["count"] > 0].groupby("seed")["client"].nunique()
    return " to ".join(map(str, sorted({by_seed.min(), by_seed.max()}))) if len(by_seed) else "0"
