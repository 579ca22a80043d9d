"""Accuracy of clients that took no part in training, beside that of those that did.

A method may have several ways to serve an unseen client (protocols); "default" is the one it
reports. A method without a default says N/A there.
"""

import numpy as np
import pandas as pd

from fedlib.exhibits import published as printed
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.metrics import PRIMARY, over_seeds
from fedlib.tables import notes, summary
from fedlib.tables.render import (
    NOT_APPLICABLE,
    Block,
    Cell,
    Column,
    Sheet,
    best_cells,
    percents,
    points,
)

DEFAULT = PRIMARY.protocol
OWN = "the method's own"  # how a reader is told of the default


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
) -> Sheet:
    """The table; its numbers have one row per federation, run and protocol of unseen clients."""
    numbers = _numbers(exhibit, exhibits.select(exhibit, metrics))
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=[_block(federation, numbers) for federation in exhibit["federations"]],
        notes=[
            *notes.measured(exhibit),
            "Seen: the clients that train, by the method's own protocol. Unseen: clients that took "
            "no part in training. All and Bottom-10% as in the accuracy table, on test examples.",
            f"Protocol: how an unseen client gets its predictor; {OWN} is the one it reports, "
            f"{NOT_APPLICABLE} where it has none. Gap: All of unseen minus seen, in percentage "
            "points.",
            _clients_note(exhibit, exhibits.select(exhibit, clients)),
            *notes.particulars(exhibit),
        ],
        numbers=numbers,
    )


def _numbers(exhibit: dict, metrics: pd.DataFrame) -> pd.DataFrame:
    shown = exhibits.pick(metrics, at="last", split="test")
    shown = shown[shown["metric"].isin(["accuracy", "bottom10"])]
    key = ["federation", "label", "group", "protocol", "metric"]
    found = over_seeds(shown, key).set_index(key)
    rows = []
    for federation in exhibit["federations"]:
        for run in exhibits.runs_of(exhibit, federation["name"]):
            where = (federation["name"], run["label"])
            for protocol in _protocols(found, where):
                seen = (*where, "seen", DEFAULT, "accuracy")
                unseen = (*where, "unseen", protocol)
                row = {
                    **summary.identity(federation, run),
                    "protocol": protocol,
                    **summary.statistics(found, seen, "seen_"),
                    **summary.statistics(found, (*unseen, "accuracy"), "unseen_"),
                    **summary.statistics(found, (*unseen, "bottom10"), "unseen_bottom10_"),
                }
                gap = printed.difference(row["unseen_mean"], row["seen_mean"])
                rows.append({**row, "gap": gap, "seeds": len(exhibit["seeds"])})
    return notes.with_scale(exhibit, pd.DataFrame(rows))


def _protocols(found: pd.DataFrame, where: tuple[str, str]) -> list[str]:
    """The default protocol, whether or not the run has it, then the others the run has."""
    names = {key[3] for key in found.index if key[:3] == (*where, "unseen")}
    return [DEFAULT, *sorted(names - {DEFAULT})]


def _block(federation: dict, numbers: pd.DataFrame) -> Block:
    mine = exhibits.pick(numbers, federation=federation["name"])
    columns = [
        *(Column("Method"), Column("Protocol"), Column("All", "Seen")),
        *(Column("All", "Unseen"), Column("Bottom-10%", "Unseen"), Column("Gap")),
    ]
    unseen, bottom = (_column(mine, name) for name in ("unseen", "unseen_bottom10"))
    seen = list(map(Cell, percents(mine, "seen_")))
    gap = [Cell(NOT_APPLICABLE if np.isnan(value) else points(value)) for value in mine["gap"]]
    keys = [
        list(map(Cell, mine["title"])),
        [Cell(OWN if x == DEFAULT else x.replace("_", " ")) for x in mine["protocol"]],
    ]
    rows = zip(*keys, seen, unseen, bottom, gap, strict=True)
    return Block(federation["title"], columns, [list(row) for row in rows], num_keys=2)


def _column(numbers: pd.DataFrame, name: str) -> list[Cell]:
    means = numbers[f"{name}_mean"].tolist()
    texts = [
        NOT_APPLICABLE if np.isnan(mean) else text
        for mean, text in zip(means, percents(numbers, f"{name}_"), strict=True)
    ]
    return best_cells(means, texts)


def _clients_note(exhibit: dict, clients: pd.DataFrame) -> str:
    parts = []
    for federation in exhibit["federations"]:
        mine = exhibits.pick(clients, federation=federation["name"], split="test")
        seen, unseen = (_clients(mine[mine["group"] == group]) for group in ("seen", "unseen"))
        parts.append(f"{federation['title']} {seen} seen, {unseen} unseen")
    return f"Clients with test examples: {'; '.join(parts)}."


def _clients(rows: pd.DataFrame) -> str:
    """How many clients have examples, from the fewest to the most where seeds differ in that."""
    by_seed = rows[rows["count"] > 0].groupby("seed")["client"].nunique()
    return " to ".join(map(str, sorted({by_seed.min(), by_seed.max()}))) if len(by_seed) else "0"
