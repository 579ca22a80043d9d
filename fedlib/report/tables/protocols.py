"""Accuracy of the clients that train under several protocols, ways to give them their predictors.

Examples are mixture weights as training left them, and mixture weights renewed with the final
experts; the two differ for clients absent from the last rounds. Unseen clients are in the table
`unseen`.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError
from fedlib.report import exhibits
from fedlib.report.exhibits import METRIC_TITLES
from fedlib.report.metrics import PRIMARY
from fedlib.report.printed import difference
from fedlib.report.tables import notes, sheets
from fedlib.report.tables.render import Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, differences, means, texts

DEFAULT = PRIMARY.protocol


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation, run, metric and protocol.

    Raises:
      ConfigError: if there is no protocol to compare with "default".
    """
    exhibit, titles = given.exhibit, _titles(given.kind.protocols)
    where = {"at": "last", "split": PRIMARY.split, "group": PRIMARY.group}
    found = given.over_seeds("federation", "label", "metric", "protocol", **where)

    def of_run(federation: dict, run: dict) -> Iterator[dict]:
        for metric in METRIC_TITLES:
            where = (federation["name"], run["label"], metric)
            first = sheets.statistics(found, (*where, DEFAULT))["mean"]
            for protocol in titles:
                ours = sheets.statistics(found, (*where, protocol))
                gain = np.nan if protocol == DEFAULT else difference(ours["mean"], first)
                about = {"group": PRIMARY.group, "metric": metric, "protocol": protocol}
                yield about | ours | {"difference": gain, "seeds": len(exhibit["seeds"])}

    def of_block(mine: pd.DataFrame) -> Columns:
        yield Column("Method"), texts(mine.drop_duplicates("label")["title"])
        for metric, over in METRIC_TITLES.items():
            for protocol, title in titles.items():
                part = exhibits.pick(mine, metric=metric, protocol=protocol)
                yield Column(title, over), means(part)
                if protocol != DEFAULT:
                    yield Column("difference", over), differences(part)

    return given.sheet(
        numbers := given.numbers(of_run),
        given.blocks(numbers, of_block),
        notes.measured(exhibit),
        "All and Bottom-10% as in the accuracy table, on test examples of the clients that train,"
        " after the last round. A dash: the method has no such protocol.",
        f"Difference: from '{titles[DEFAULT]}', in percentage points. {sheets.HIGHEST}",
    )


def _titles(protocols: dict[str, str]) -> dict[str, str]:
    """The titles in column order; ConfigError if there is nothing to compare."""
    others = sorted(protocols.keys() - {DEFAULT})
    if DEFAULT not in protocols or not others:
        raise ConfigError(
            f"protocols must be {DEFAULT} and at least one other, got "
            f"{', '.join(protocols) or 'none'}"
        )
    return {name: protocols[name] for name in (DEFAULT, *others)}
