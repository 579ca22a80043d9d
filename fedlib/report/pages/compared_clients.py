"""Two folders of results client by client: how a run's accuracies differ, with intervals over them.

That takes the same clients in both folders: the same digest of their shards, or, where the runs
themselves are not kept, as many test examples of every client.
"""

from collections.abc import Collection, Mapping

import pandas as pd

from fedlib.report import exhibits, intervals
from fedlib.report.metrics import PRIMARY
from fedlib.report.pages.folders import Results, Run
from fedlib.report.tables.render import ABSENT, points

DECIMALS = 2  # of percent
POOLED = {"accuracy_client_mean": False, "accuracy": True}  # metrics, and whether they are pooled
FOUND = ["clients_low", "clients_high", "clients_p", "num_clients"]


def over_clients(
    first: Results,
    second: Results,
    pairs: Mapping[Run, list[int]],
    others: Collection[Run],
    key: list[str],
) -> pd.DataFrame:
    """Intervals of the second's accuracy minus the first's, over the seeds that both have.

    Args:
      others: runs whose shards are known to differ.

    Returns:
      `key` (run, view and metric) and `FOUND`, of the runs whose clients are the same.

    Raises:
      DataError: if a file is damaged.
    """
    rows = []
    for paper in {run[0]: True for run in pairs}:
        frame, other = (results.clients(paper) for results in (first, second))
        for run, seeds in pairs.items():
            if run[0] == paper and seeds and run not in others:
                a, b = (_clients(x, run, seeds) for x in (frame, other))
                if len(a) and a["count"].equals(b["count"]):
                    rows += [(*run, *PRIMARY, metric, *_found(a, b, metric)) for metric in POOLED]
    return pd.DataFrame(rows, columns=[*key, *FOUND])


def interval_text(row: Mapping) -> str:
    """The interval in points, and p, of a row with `FOUND`."""
    low, high, p = (row[name] for name in FOUND[:3])
    found = intervals.ends(low, high, lambda value: points(value, DECIMALS))
    return f"{found}, p {intervals.p_text(p)}" if found else ABSENT


def _found(a: pd.DataFrame, b: pd.DataFrame, metric: str) -> tuple[float, float, float, int]:
    found = intervals.paired(b, a, POOLED[metric])
    return found.low, found.high, found.p, len(a)


def _clients(frame: pd.DataFrame, run: Run, seeds: list[int]) -> pd.DataFrame:
    _, federation, label = run
    mine = exhibits.pick(frame, federation=federation, label=label)
    return intervals.by_client(mine[mine["seed"].isin(seeds)])
