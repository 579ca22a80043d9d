"""What the clients of a run say of clients like them: intervals, and differences of two methods.

Clients are what is drawn at random, each with all of its test examples; the trained models stay as
they are. So an interval over clients says nothing of other seeds, see `fedlib.report.metrics.seeds`
for those. Two methods on the same clients are compared client by client, which takes out how hard
a client's examples are.

The standard error is the jackknife's: how much a mean changes without each client in turn. Where
every client counts the same it is that of Student's t test. A pooled accuracy weighs a client by
its examples; few large clients can decide it, so the degrees of freedom are those of the effective
number of clients.

Source: Miller, "The jackknife: a review", Biometrika 61, 1974 (ratios of means); Kish, "Survey
  Sampling", 1965 (effective number).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from fedlib.errors import DataError

LEVEL = 0.95
INTERVAL_CLIENTS = 5  # fewest of which an interval is given; fewer have too often equal accuracies


class Interval(NamedTuple):
    """A mean over clients, and between what it lies; NaN if that is not known.

    Attributes:
      low, high: ends of the interval of `LEVEL`.
      p: two-sided, of a mean that is really 0; says something of differences alone.
    """

    mean: float
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan


def by_client(rows: pd.DataFrame) -> pd.DataFrame:
    """`count` and `correct` of each client, all seeds together, and its mean `accuracy` over them.

    Where every seed has a partition of its own, clients of the same number are taken together; as
    they were drawn independently, the intervals stay right.

    Args:
      rows: of one view of a run, see `fedlib.report.metrics.client_rows`.
    """
    seeds = rows[rows["count"] > 0].groupby("client")
    return seeds.agg(
        count=("count", "sum"), correct=("correct", "sum"), accuracy=("accuracy", "mean")
    )


def interval(clients: pd.DataFrame, pooled: bool = False) -> Interval:
    """The mean accuracy of clients (see `by_client`), or that of all their examples together."""
    values = clients["correct"] / clients["count"] if pooled else clients["accuracy"]
    found = _interval(values.to_numpy(), _weights(clients, pooled))
    low, high = np.clip((found.low, found.high), 0, 1).tolist()
    return found._replace(low=low, high=high)


def paired(ahead: pd.DataFrame, behind: pd.DataFrame, pooled: bool = False) -> Interval:
    """By how much the first method is ahead of the second on the same clients; as `interval`.

    Raises:
      DataError: if they are not the same clients, with as many examples.
    """
    if not ahead["count"].equals(behind["count"]):
        raise DataError("a paired difference needs the same clients, with as many test examples")
    values = ahead["accuracy"] - behind["accuracy"]
    if pooled:
        values = (ahead["correct"] - behind["correct"]) / ahead["count"]
    return _interval(values.to_numpy(), _weights(ahead, pooled))


def ends(low: float, high: float, text: Callable[[float], str]) -> str:
    """An interval in brackets, its numbers as `text`; "" for an unknown one."""
    return "" if np.isnan(low) else f"[{text(low)}, {text(high)}]"


def p_text(p: float) -> str:
    """A p value as tables print it, "= 0.012" or "< 0.001"."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def _weights(clients: pd.DataFrame, pooled: bool) -> np.ndarray:
    return clients["count"].to_numpy(np.float64) if pooled else np.ones(len(clients))


def _interval(values: np.ndarray, weights: np.ndarray) -> Interval:
    """The weighted mean of a value per client, both [C]."""
    number, whole = len(values), weights.sum()
    mean = float(np.average(values, weights=weights)) if number else np.nan
    if number < INTERVAL_CLIENTS:
        return Interval(mean)
    changes = weights * (values - mean) / (whole - weights)  # of the mean without each client
    error = np.sqrt((number - 1) / number * (changes**2).sum())
    freedom = whole**2 / (weights**2).sum() - 1
    half = stdtrit(freedom, (1 + LEVEL) / 2) * error
    p = 2 * stdtr(freedom, -abs(mean) / error) if error else float(mean == 0)
    return Interval(mean, mean - half, mean + half, float(p))
