"""Statistics over the seeds of a run: means, deviations, intervals."""

import numpy as np
import pandas as pd
from scipy.special import stdtrit

INTERVAL_SEEDS = 3  # fewest seeds for an interval


def over_seeds(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """`value` over the rows of each group of `by`, one row per seed.

    Returns:
      One row per group: `by`, then mean, std (ddof 1), ci95 (half-width of the 95 % interval of
      the mean, Student's t), low, high (smallest and largest seed) and seeds. std is NaN for one
      seed, and ci95 for fewer than `INTERVAL_SEEDS`, see `half_width`.
    """
    groups = frame.groupby(by, sort=False, observed=True)["value"]
    table = groups.agg(mean="mean", std="std", low="min", high="max", seeds="count").reset_index()
    return table.assign(ci95=half_width(table["std"], table["seeds"]))


def summary(values: pd.Series) -> dict[str, float]:
    """`over_seeds` of one group, a value per seed: its columns by name."""
    found = over_seeds(values.to_frame("value").assign(all=0), ["all"]).drop(columns="all")
    return found.to_dict("records")[0]


def half_width(std: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Half-width of the 95 % interval of a mean: t(0.975, n - 1) std / sqrt(n).

    NaN for n < `INTERVAL_SEEDS`: with two seeds it would be nine times their standard deviation,
    and reflect the quantile rather than the data.
    """
    seeds = np.asarray(seeds, np.float64)
    quantile = stdtrit(np.where(seeds >= INTERVAL_SEEDS, seeds - 1, np.nan), 0.975)
    return quantile * np.asarray(std) / np.sqrt(seeds)
