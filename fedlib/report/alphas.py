"""How alpha of a server's mixture changed: what weighs its routed experts against the main one."""

from collections.abc import Iterator

import pandas as pd

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.inputs import Inputs
from fedlib.report.metrics import TRAFFIC

ALPHA = "alpha"  # as a metric, a hyper-parameter and a published metric


def recorded(given: Inputs) -> Iterator[tuple[dict, dict, pd.DataFrame]]:
    """(federation, run, its alpha by round and seed) of every run, federation by federation.

    Raises:
      DataError: if a run did not record it.
    """
    shown = exhibits.pick(given.rows, at="round", metric=ALPHA, group=TRAFFIC.group)
    for federation, run in given.runs:
        mine = exhibits.of_run(shown, run)
        if mine.empty:
            raise DataError(f"{exhibits.name(run)} did not record its {ALPHA}")
        yield federation, run, mine
