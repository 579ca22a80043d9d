"""Intervals over the clients of a run, and paired differences of two methods on the same clients.

Clients are the random sample, each with all of its test examples; the trained models are fixed. An
interval over clients therefore says nothing about other seeds, see `fedlib.report.metrics.seeds`
for those. Two methods on the same clients are compared client by client, which cancels the
difficulty of a client's examples.

The standard error is the jackknife's: the change of a mean without each client in turn. With equal
weights it equals that of Student's t test. A pooled accuracy weighs a client by its examples, and
few large clients can decide it, so the degrees of freedom follow from the effective number of
clients.

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
INTERVAL_CLIENTS = 5  # fewest clients for an interval; fewer too often have equal accuracies


class Interval(NamedTuple):
    """A mean over clients and its interval; NaN if unknown.

    Attributes:
      low, high: ends of the interval of `LEVEL`.
      p: two-sided, for a true mean of 0; meaningful only for differences.
    """

    mean: float
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan


def by_client(rows: pd.DataFrame) -> pd.DataFrame:
    """`count` and `correct` of each client, summed over seeds, and its mean `accuracy` over seeds.

    If every seed has its own partition, clients of the same number are combined; they were drawn
    independently, so the intervals stay valid.

    Args:
      rows: of one view of a run, see `fedlib.report.metrics.client_rows`.
    """
    seeds = rows[rows["count"] > 0].groupby("client")
    return seeds.agg(
        count=("count", "sum"), correct=("correct", "sum"), accuracy=("accuracy", "mean")
    )


def interval(clients: pd.DataFrame, pooled: bool = False) -> Interval:
    """The mean accuracy of clients (see `by_client`), or the accuracy of their pooled examples."""
    values = clients["correct"] / clients["count"] if pooled else clients["accuracy"]
    found = _interval(values.to_numpy(), _weights(clients, pooled))
    low, high = np.clip((found.low, found.high), 0, 1).tolist()
    return found._replace(low=low, high=high)


def paired(ahead: pd.DataFrame, behind: pd.DataFrame, pooled: bool = False) -> Interval:
    """The lead of the first method over the second on the same clients; see `interval`.

    Raises:
      DataError: if the clients or their numbers of examples differ.
    """
    if not ahead["count"].equals(behind["count"]):
        raise DataError("a paired difference needs the same clients, with as many test examples")
    values = ahead["accuracy"] - behind["accuracy"]
    if pooled:
        values = (ahead["correct"] - behind["correct"]) / ahead["count"]
    return _interval(values.to_numpy(), _weights(ahead, pooled))


def ends(low: float, high: float, text: Callable[[float], str]) -> str:
    """An interval in brackets, its numbers formatted by `text`; "" for an unknown one."""
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
    changes = weights * (values - mean) / (whole - weights)  # in the mean, without each client
    error = np.sqrt((number - 1) / number * (changes**2).sum())
    freedom = whole**2 / (weights**2).sum() - 1
    half = stdtrit(freedom, (1 + LEVEL) / 2) * error
    p = 2 * stdtr(freedom, -abs(mean) / error) if error else float(mean == 0)
    return Interval(mean, mean - half, mean + half, float(p))
