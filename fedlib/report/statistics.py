"""Statistics of the difference of two methods over a sample of federations.

The sample is of federations, not of their clients, who share a server. Seeds are nested: each
federation has one number, the mean over its seeds of a difference paired by seed. Federations of
one data set may be alike, which the bootstrap over data sets shows.

Source: J. L. Hodges and E. L. Lehmann, "Estimates of Location Based on Rank Tests", Annals of
  Mathematical Statistics 34, 1963; S. Holm, Scandinavian Journal of Statistics 6, 1979; A. Benavoli
  et al., "A Bayesian Wilcoxon signed-rank test based on the Dirichlet process", ICML 2014, and
  "Time for a Change", JMLR 18, 2017 (region of practical equivalence).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from fedlib import streams

ROPE = 0.01  # accuracies that differ by at most one point are practically equal
LEVEL = 0.95  # of all intervals
DECIMALS = 12  # of differences; the others are rounding errors of sums
SAMPLES = 20_000  # of the posterior
RESAMPLES = 2_000  # of the bootstrap
FEW = 3  # data sets; so few, or fewer, have no interval
PRIOR = 0.5  # weight of the prior's one observation, which is 0
FEWEST_FEDERATIONS, FEWEST_DATASETS = 3, 2  # for a verdict; all numbers of verdicts are ours
# Posterior probabilities of being better (two) and of being equal, and a share of federations.
CLEAR, LEANING, EQUAL, IN_FRONT = 0.9, 0.75, 0.75, 0.75


class Shift(NamedTuple):
    """A median difference and its interval; the ends are NaN if the sample is too small."""

    median: float
    low: float
    high: float
    p: float


class Posterior(NamedTuple):
    """Probabilities that the first method is better, equal within the region, or worse."""

    better: float
    equal: float
    worse: float


def hodges_lehmann(differences: Sequence[float]) -> Shift:
    """The pseudo-median, its distribution-free interval of `LEVEL`, and the signed-rank test's p.

    The ends are order statistics of the means of all pairs; with fewer than six differences no
    interval covers enough. The test leaves out differences of 0, and p is 1 if none are left.
    """
    values = np.asarray(differences, np.float64)
    rows, columns = np.triu_indices(len(values))
    means = np.sort((values[rows] + values[columns]) / 2)
    below = num_below(len(values))
    low, high = (means[below], means[-1 - below]) if below >= 0 else (np.nan, np.nan)
    return Shift(float(np.median(means)), float(low), float(high), float(wilcoxon(values)))


def wilcoxon(differences: np.ndarray) -> np.ndarray:
    """The signed-rank test's exact p, two-sided, of differences [..., N] -> [...]

    Differences of 0, and NaN, are left out; p is 1 if none are left. `scipy.stats.wilcoxon` gives
    the same, but takes hours for thousands of samples with ties.
    """
    sizes = np.where(differences == 0, np.nan, np.abs(differences))
    twice = np.nan_to_num(2 * stats.rankdata(sizes, axis=-1, nan_policy="omit")).astype(int)
    least = np.minimum(*((twice * (side * differences > 0)).sum(-1) for side in (1, -1)))
    ranks = np.sort(twice).reshape(-1, twice.shape[-1])  # few rows differ
    every, which = np.unique(ranks, axis=0, return_inverse=True)
    tails = [_tail(one) for one in every]
    p = [tails[one][at] for one, at in zip(which, least.flat, strict=True)]
    return np.minimum(2 * np.reshape(p, least.shape), 1)


def num_below(num: int) -> int:
    """Number of sorted means of pairs below an interval of `LEVEL`; -1 if there is no interval."""
    return int(np.searchsorted(_tail(range(1, num + 1)), (1 - LEVEL) / 2, side="right")) - 1


def _tail(ranks: Iterable[int]) -> np.ndarray:
    """Probability that ranks with random signs have a sum of positive ones of at most 0, 1, ..."""
    ways = np.ones(1)
    for rank in ranks:
        ways = (np.pad(ways, (0, rank)) + np.pad(ways, (rank, 0))) / 2
    return np.cumsum(ways)


def holm(ps: ArrayLike) -> np.ndarray:
    """The p values [..., N], each adjusted for the N of its row -> [..., N]"""
    values = np.asarray(ps, np.float64)
    order = np.argsort(values, axis=-1)
    steps = np.take_along_axis(values, order, -1) * np.arange(values.shape[-1], 0, -1)
    highest = np.minimum(np.maximum.accumulate(steps, axis=-1), 1)
    return np.take_along_axis(highest, np.argsort(order, axis=-1), -1)


def signed_rank(differences: Sequence[float]) -> Posterior:
    """The Bayesian signed-rank test with a region of practical equivalence.

    A sample of the posterior weighs the differences and one 0 by a Dirichlet draw; the mean of two
    of them is then better, equal or worse with probabilities that sum to 1. The result is the share
    of samples in which each of the three is most probable.
    """
    values = np.concatenate([[0.0], np.asarray(differences, np.float64)])
    sums = values[:, None] + values
    concentration = np.array([PRIOR, *np.ones(len(values) - 1)])
    draws = streams.generator(0, "signed_rank").dirichlet(concentration, SAMPLES)
    better, worse = (
        np.einsum("si,ij,sj->s", draws, np.heaviside(side - 2 * ROPE, 0.5), draws)
        for side in (sums, -sums)
    )
    found = np.stack([better, 1 - better - worse, worse])
    return Posterior(*(np.bincount(found.argmax(0), minlength=3) / SAMPLES).tolist())


def by_federation(paired: pd.DataFrame) -> pd.DataFrame:
    """The mean over seeds of a paired difference: columns federation, dataset, value.

    It is rounded to `DECIMALS`: methods that are equal differ by 0, and not by rounding errors.

    Args:
      paired: a row for each federation and seed: federation, dataset, seed, value.
    """
    groups = paired.groupby(["federation", "dataset"], sort=False, observed=True)
    return groups["value"].mean().round(DECIMALS).reset_index()


def bootstrap(paired: pd.DataFrame, over: str) -> tuple[float, float]:
    """Bootstrap interval of `LEVEL` of the mean over federations.

    Args:
      paired: see `by_federation`.
      over: "seed" draws the seeds of each federation again (would the same federations agree?),
        "dataset" draws data sets, with all federations of each (would other federations agree?).

    Returns:
      NaN for both ends if a federation has one seed, or if there are so few seeds, or `FEW` data
      sets or less, that the interval would be from the least mean to the greatest.
    """
    draw = streams.generator(0, "bootstrap", over)
    if over == "dataset":
        groups = by_federation(paired).groupby("dataset", sort=False)["value"]
        total, number = groups.sum().to_numpy(), groups.count().to_numpy()
        chosen = draw.integers(len(total), size=(RESAMPLES, len(total)))
        means = total[chosen].sum(1) / number[chosen].sum(1)
        enough = len(total) > FEW
    else:
        parts = [part.to_numpy() for _, part in paired.groupby("federation", sort=False)["value"]]
        again = [part[draw.integers(len(part), size=(RESAMPLES, len(part)))] for part in parts]
        means = np.mean([part.mean(1) for part in again], axis=0)
        least = np.prod([float(len(part)) ** -len(part) for part in parts])  # how often it is drawn
        enough = least < (1 - LEVEL) / 2 and all(len(part) > 1 for part in parts)
    if not enough:
        return np.nan, np.nan
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def verdict(found: pd.DataFrame, posterior: Posterior) -> str:
    """The conclusion: "clear", "leaning", "equal" or "unknown".

    Args:
      found: result of `by_federation`.
      posterior: of its values.
    """
    if len(found) < FEWEST_FEDERATIONS or found["dataset"].nunique() < FEWEST_DATASETS:
        return "unknown"
    in_front = (found["value"] > 0).mean()
    reversed_somewhere = (found.groupby("dataset")["value"].mean() < -ROPE).any()
    if posterior.better >= CLEAR and in_front >= IN_FRONT and not reversed_somewhere:
        return "clear"
    if posterior.better >= LEANING:
        return "leaning"
    return "equal" if posterior.equal >= EQUAL else "unknown"
