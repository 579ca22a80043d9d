"""Accuracy of one group of clients under several protocols, ways to give them their predictors.

Such as mixture weights as training left them, and renewed with the final experts: the two differ
for clients that were absent from the last rounds. What unseen clients get is the table `unseen`.
"""

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError
from fedlib.exhibits import published as printed
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.metrics import PRIMARY, over_seeds
from fedlib.exhibits.selection import METRIC_TITLES
from fedlib.tables import notes
from fedlib.tables.render import Block, Cell, Column, Sheet, best_cells, percents, points
from fedlib.tables.summary import identity, statistics

GROUPS = {"seen": "clients that train", "unseen": "clients that took no part in training"}


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    protocols: dict[str, str],
    group: str = PRIMARY.group,
) -> Sheet:
    """The table; its numbers have one row per federation, run, metric and protocol.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.
      protocols: titles by name. "default" comes first and is what the others are compared with;
        the others are in the order of their names, as the keys of JSON have no order.
      group: "seen" or "unseen" clients.

    Raises:
      ConfigError: for another group, or if "default" has nothing to be compared with.
    """
    if group not in GROUPS:
        raise ConfigError(f"group must be {' or '.join(GROUPS)}, got {group!r}")
    others = sorted(protocols.keys() - {PRIMARY.protocol})
    if PRIMARY.protocol not in protocols or not others:
        raise ConfigError(
            f"protocols must be {PRIMARY.protocol} and at least one other, got "
            f"{', '.join(protocols) or 'none'}"
        )
    titles = {name: protocols[name] for name in (PRIMARY.protocol, *others)}
    numbers = _numbers(exhibit, exhibits.select(exhibit, metrics), list(titles), group)
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=[_block(federation, numbers, titles) for federation in exhibit["federations"]],
        notes=[
            *notes.measured(exhibit),
            f"All and Bottom-10% as in the accuracy table, on test examples of the {GROUPS[group]},"
            " after the last round. A dash: the method has no such protocol.",
            f"Difference: from '{titles[PRIMARY.protocol]}', in percentage points. "
            "Bold: highest of the column.",
            *notes.particulars(exhibit),
        ],
        numbers=numbers,
    )


def _numbers(
    exhibit: dict, metrics: pd.DataFrame, protocols: list[str], group: str
) -> pd.DataFrame:
    shown = exhibits.pick(metrics, at="last", split=PRIMARY.split, group=group)
    key = ["federation", "label", "metric", "protocol"]
    found = over_seeds(shown[shown["metric"].isin(METRIC_TITLES)], key).set_index(key)
    rows = []
    for federation in exhibit["federations"]:
        for run in exhibits.runs_of(exhibit, federation["name"]):
            for metric in METRIC_TITLES:
                where = (federation["name"], run["label"], metric)
                first = statistics(found, (*where, protocols[0]))["mean"]
                for protocol in protocols:
                    values = statistics(found, (*where, protocol))
                    about = {"group": group, "metric": metric, "protocol": protocol}
                    row = {**identity(federation, run), **about, **values}
                    other = np.nan if protocol == protocols[0] else values["mean"]
                    gain = printed.difference(other, first)
                    rows.append({**row, "difference": gain, "seeds": len(exhibit["seeds"])})
    return notes.with_scale(exhibit, pd.DataFrame(rows))


def _block(federation: dict, numbers: pd.DataFrame, titles: dict[str, str]) -> Block:
    """A row per run; under each metric a column per protocol, and how far it is from the first."""
    mine = exhibits.pick(numbers, federation=federation["name"])
    columns = [Column("Method")]
    cells = [[Cell(title) for title in mine.drop_duplicates("label")["title"]]]
    for metric, group in METRIC_TITLES.items():
        for number, (protocol, title) in enumerate(titles.items()):
            part = exhibits.pick(mine, metric=metric, protocol=protocol)
            columns.append(Column(title, group))
            cells.append(best_cells(part["mean"].tolist(), percents(part)))
            if number:
                columns.append(Column("difference", group))
                cells.append([Cell(points(value)) for value in part["difference"]])
    return Block(federation["title"], columns, [list(row) for row in zip(*cells, strict=True)])
