"""How alpha of a server's mixture changed: what weighs its routed experts against the main one."""

from collections.abc import Iterator

import pandas as pd

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.metrics import TRAFFIC

ALPHA = "alpha"  # as a metric, a hyper-parameter and a published metric


def recorded(exhibit: dict, metrics: pd.DataFrame) -> Iterator[tuple[dict, dict, pd.DataFrame]]:
    """(federation, run, its alpha by round and seed) of every run, federation by federation.

    Raises:
      DataError: if a run did not record it.
    """
    shown = exhibits.pick(exhibits.select(exhibit, metrics), at="round", metric=ALPHA)
    shown = exhibits.pick(shown, group=TRAFFIC.group)
    for federation in exhibit["federations"]:
        for run in exhibits.runs_of(exhibit, federation["name"]):
            mine = exhibits.pick(shown, federation=federation["name"], label=run["label"])
            if mine.empty:
                raise DataError(f"{federation['name']}/{run['label']} did not record its {ALPHA}")
            yield federation, run, mine
