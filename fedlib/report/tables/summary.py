"""What the rows of several tables have in common: who they are about, and statistics over seeds."""

import numpy as np
import pandas as pd

from fedlib.report.metrics import over_seeds
from fedlib.report.tables.render import with_spread

STATISTICS = ("mean", "std", "ci95", "low", "high")


def identity(federation: dict, run: dict) -> dict[str, str]:
    """The columns that say which run of which federation a row of numbers is about."""
    return {
        "federation": federation["name"],
        "dataset": federation["dataset"],
        "label": run["label"],
        "title": run["title"],
    }


def statistics(summary: pd.DataFrame, key: tuple, prefix: str = "") -> dict[str, float]:
    """`STATISTICS` of one row of `fedlib.report.metrics.over_seeds`, its names prefixed.

    Args:
      summary: indexed by the columns that `over_seeds` grouped by.
      key: of the row; if there is none, as a run may lack a protocol, all are NaN.
      prefix: of the names.
    """
    found = summary.loc[key] if key in summary.index else dict.fromkeys(STATISTICS, np.nan)
    return {f"{prefix}{name}": float(found[name]) for name in STATISTICS}


def mean_text(seeds: pd.DataFrame, column: str, decimals: int) -> str:
    """The mean of a column over seeds, with its interval or range; see `render.with_spread`."""
    (found,) = over_seeds(seeds.assign(value=seeds[column], run=0), ["run"]).to_dict("records")
    return with_spread(found, "ci95", lambda value: f"{value:.{decimals}f}")
