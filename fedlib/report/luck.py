"""How much of a ranking of methods is luck of their tuning.

Accuracies are frames as of `fedlib.report.contrasts.accuracies`. In `again` each seed of a run has
a tuning of its own, in `once` all seeds of a run share one.

Source: J. Dodge et al., "Show Your Work: Improved Reporting of Experimental Results", EMNLP 2019
  (expected best of k trials); X. Bouthillier et al., "Accounting for Variance in Machine Learning
  Benchmarks", MLSys 2021 (sources of variation).
Deviation: the expected best is that of k of the trials, drawn without replacement, which has no
  bias.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import special, stats
from statsmodels.regression.mixed_linear_model import MixedLM

from fedlib import streams
from fedlib.errors import DataError
from fedlib.report import contrasts, exhibits, statistics
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.runs import TUNING

SOURCES = ("dataset", "federation", "tuning", "training")
# Of statsmodels' fit. Its own methods follow gradients, and stop early where variances differ much.
EXACT = {"method": "nm", "xtol": 1e-5, "ftol": 1e-10, "maxiter": 10_000}


def accuracies(given: Inputs, rows: Sequence[Mapping]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The accuracies `again` and `once` of the rows of an exhibit, see `fedlib.spec.luck`."""
    again = [row for row in rows if row.get("again")]
    once = [row for row in rows if not row.get("again")]
    return contrasts.accuracies(given, again), contrasts.accuracies(given, once)


def components(again: pd.DataFrame, once: pd.DataFrame) -> dict[str, float]:
    """Mean of `again`, and standard deviations of one method's values by source: `SOURCES`.

    A mixed model, fitted by restricted maximum likelihood: a value is the mean, a shift of `once`,
    and what its data set, its federation, its tuning and its training add. NaN for what these
    values cannot tell apart, and for a fit that does not end. Where trainings of one tuning never
    differ, there is no best fit.
    """
    found = {"mean": again["value"].mean()} | dict.fromkeys(SOURCES, np.nan)
    tunings = again["federation"] + "/" + again["seed"].astype(str)
    both = again.assign(once=0.0, tuning=tunings), once.assign(once=1.0, tuning=once["federation"])
    rows = pd.concat(both, ignore_index=True)  # statsmodels finds rows by their index
    federations, datasets = rows["federation"].nunique(), rows["dataset"].nunique()
    if federations < 2 or min(again["seed"].nunique(), once["seed"].nunique()) < 2:
        return found
    nested = 1 < datasets < federations
    model = MixedLM.from_formula(
        "value ~ once",
        rows.assign(group=rows["dataset"] if nested else "all"),
        groups="group",
        re_formula="1" if nested else "0",
        vc_formula={"federation": "0 + C(federation)", "tuning": "0 + C(tuning)"},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance of 0 is at the edge of what is possible
        try:
            fit = model.fit(reml=True, **EXACT)
        except np.linalg.LinAlgError:  # rare, where nothing but trainings adds anything
            return found
    if not fit.converged or fit.scale < 1e-12:  # accuracies do not differ by so little
        return found
    variances = dict(zip(model.exog_vc.names, fit.vcomp, strict=True)) | {"training": fit.scale}
    if nested:
        variances["dataset"] = fit.cov_re.iloc[0, 0]
    return found | {name: round(float(np.sqrt(max(x, 0))), 5) for name, x in variances.items()}


def expected_best(accuracy: Iterable[float]) -> np.ndarray:
    """Expected best of k of N trials, for k = 1 to N -> [N]; a diverged trial (NaN) counts as 0."""
    values = np.sort(np.nan_to_num(np.asarray([*accuracy], np.float64)))
    number = len(values)
    k, rank = np.arange(1, number + 1)[:, None], np.arange(number)
    return (special.comb(rank, k - 1) / special.comb(number, k)) @ values


def trials(given: Inputs, rows: Sequence[Mapping]) -> dict[str, np.ndarray]:
    """Mean over federations of `expected_best` by title: all trials of all tunings together.

    Raises:
      DataError: for a tuning with a rung: the few trials that pass it are no sample.
    """
    metrics, found = given.metrics, {}
    metrics = exhibits.pick(metrics[metrics["index"] != ""], at=TUNING, metric="trial")
    for row in rows:
        if row.get("again"):
            mine = metrics[metrics["label"].isin(row["labels"])].groupby("federation")
            if (mine["round"].nunique() > 1).any():
                raise DataError(f"{row['title']} is tuned with a rung, which few trials pass")
            values = mine["value"]
            each = [expected_best(values.get_group(x.name)) for x in given.exhibit.federations]
            shortest = min(map(len, each))
            found[row["title"]] = np.mean([one[:shortest] for one in each], axis=0)
    return found


def cube(again: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Values of the methods that are on all federations -> [F, M, S], data sets [F], titles [M]"""
    wide = again.pivot(index=["dataset", "federation"], columns=["title", "seed"], values="value")
    wide = wide.T.groupby("title", sort=False).filter(lambda x: x.notna().all(axis=None)).T
    titles = [*dict.fromkeys(wide.columns.get_level_values("title"))]
    values = wide.to_numpy().reshape(len(wide), len(titles), -1)
    return values, wide.index.get_level_values("dataset").to_numpy(), titles


def draw_tunings(values: np.ndarray) -> np.ndarray:
    """Values [F, M, S] with one tuning of each method on each federation -> [R, F, M]"""
    draw = streams.generator(0, "luck", "tunings")
    which = draw.integers(values.shape[-1], size=(statistics.RESAMPLES, *values.shape[:-1], 1))
    return np.take_along_axis(values[None], which, -1)[..., 0]


def ranks(again: pd.DataFrame) -> pd.DataFrame:
    """Ranks of methods by their mean over federations; 1 is the highest.

    Returns:
      By title: "rank" of the mean over all tunings; "low", "high", ends of the interval of
      `statistics.LEVEL` if a tuning is drawn for each method and federation; "datasets_low",
      "datasets_high", if data sets are drawn again, too, with all their federations (NaN if there
      are `statistics.FEW` or less).
    """
    values, datasets, titles = cube(again)
    once = draw_tunings(values)
    names, group = np.unique(datasets, return_inverse=True)
    draw = streams.generator(0, "luck", "datasets")
    even = np.full(len(names), 1 / len(names))
    counts = draw.multinomial(len(names), even, size=statistics.RESAMPLES)
    weights = counts[:, group]
    again_too = np.einsum("rfm,rf->rm", once, weights) / weights.sum(1, keepdims=True)
    found = {"rank": _rank(values.mean((0, 2)))}
    for name, means, enough in (
        ("", once.mean(1), True),
        ("datasets_", again_too, len(names) > statistics.FEW),
    ):
        tail = (1 - statistics.LEVEL) / 2
        ends = np.quantile(_rank(means), [tail, 1 - tail], axis=0)
        for end, value in zip(("low", "high"), ends, strict=True):
            found[name + end] = value if enough else np.full(len(titles), np.nan)
    return pd.DataFrame(found, index=pd.Index(titles, name="title")).sort_values("rank")


def _rank(means: np.ndarray) -> np.ndarray:
    return stats.rankdata(-means, axis=-1)


def survival(
    again: pd.DataFrame, once: pd.DataFrame, of: Iterable[str], against: str
) -> pd.DataFrame:
    """What is left of the differences of methods: a row for each of the titles `of`.

    Returns:
      Columns title; "before", "p_before": median difference and p, adjusted by Holm, of `once`;
      "median", "low", "high", "p": of the means over the tunings of `again`; "share": of draws of
      one tuning for each method and federation whose median difference has the sign of "median" and
      p is at most 0.05; "datasets", "datasets_low", "datasets_high", "p_datasets": mean of the
      means of data sets, with Student's interval and test.
    """
    titles = [x for x in of if {x, against} <= {*again["title"]} & {*once["title"]}]
    before = contrasts.all_contrasts(once, titles, [against]).set_index("title")
    now = contrasts.all_contrasts(again, titles, [against]).set_index("title")
    found = pd.DataFrame(
        {
            "before": before["median"],
            "p_before": before["p_holm"],
            **{name: now[name] for name in ("median", "low", "high")},
            "p": now["p_holm"],
        }
    )
    found["share"] = _share(again, found["median"], against)
    by_dataset = pd.DataFrame(_by_dataset(again, title, against) for title in found.index)
    found = found.join(by_dataset.set_index("title"))
    # Student's p of nothing but zeros is NaN.
    return found.assign(p_datasets=statistics.holm(found["p_datasets"].fillna(1))).reset_index()


def _share(again: pd.DataFrame, median: pd.Series, against: str) -> pd.Series:
    """Share of draws of tunings in which each difference is decided as by its median."""
    values, _, titles = cube(again)
    drawn = draw_tunings(values)
    differences = (drawn - drawn[..., [titles.index(against)]]).round(statistics.DECIMALS)
    differences = differences[..., [titles.index(title) for title in median.index]]
    p = statistics.wilcoxon(np.moveaxis(differences, 1, -1))
    decided = statistics.holm(p) <= 1 - statistics.LEVEL
    same = np.sign(np.median(differences, axis=1)) == np.sign(median.to_numpy())
    return pd.Series((decided & same).mean(0), median.index)


def _by_dataset(again: pd.DataFrame, title: str, against: str) -> Mapping:
    """The mean over data sets of a difference, with Student's interval and p; NaN for one."""
    paired = statistics.by_federation(contrasts.subtract(again, title, against))
    means = paired.groupby("dataset")["value"].mean()
    row = {"title": title, "datasets": means.mean(), "p_datasets": 1.0}
    if len(means) < 2:
        return row | {"datasets_low": np.nan, "datasets_high": np.nan}
    test = stats.ttest_1samp(means, 0)
    low, high = test.confidence_interval(statistics.LEVEL)
    return row | {"datasets_low": low, "datasets_high": high, "p_datasets": test.pvalue}
