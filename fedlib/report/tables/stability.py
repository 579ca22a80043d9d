"""Stability of the order of methods: Kendall's tau of two rankings.

Methods are ordered by mean accuracy over all federations. That order is compared with the orders
without a data set, from one seed, and by another measure. 1: the same; 0: no more alike than by
chance; -1: reversed.

Source: M. G. Kendall, "The Treatment of Ties in Ranking Problems", Biometrika 33, 1945 (tau-b).
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
from scipy import stats

from fedlib.report import contrasts
from fedlib.report.choices import choices, of_clients
from fedlib.report.tables import render
from fedlib.report.tables.render import Block, Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, block, texts

ACCURACY = "accuracy"
MEASURES = {"worst tenth": "worst_tenth", "NLL": "loss", "Brier": "brier"}  # by title
LESS_IS_BETTER = ("loss", "brier")
PARTS = {  # heading, and head of the first column
    "dataset": ("A data set left out", "Data set"),
    "seed": ("One seed alone", "Seed"),
    "measure": ("Another measure than accuracy", "Measure"),
}


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have a row for each other order."""
    values = _of_all(_values(given))
    numbers = pd.DataFrame(
        [*_without(values, "dataset"), *_without(values, "seed"), *_by_measure(values)]
    )
    return given.sheet(
        numbers,
        [_block(part, numbers[numbers["part"] == part]) for part in PARTS if len(numbers)],
        f"Kendall's tau of two orders of the {values['title'].nunique()} methods that ran on all "
        "federations: 1 if they are the same, 0 if they are no more alike than by chance, −1 if "
        "one is the other reversed. Without: the order by mean accuracy without that, against that "
        "of everything. Alone: the order on that alone, against that on the rest; by a measure, "
        "against that by accuracy.",
    )


def _values(given: TableInputs) -> pd.DataFrame:
    """Accuracy and `MEASURES`: a row for each federation, method and seed."""
    found = []
    for choice in choices(given, given.kind.rows):
        seen = of_clients(given, choice).reindex(columns=["seed", ACCURACY, "loss", "brier"])
        by_seed = seen.groupby("seed")
        measured = by_seed.mean().assign(worst_tenth=by_seed[ACCURACY].apply(contrasts.worst_tenth))
        about = {"federation": choice.federation["name"], "dataset": choice.federation["dataset"]}
        found.append(measured.reset_index().assign(**about, title=choice.row["title"]))
    return pd.concat(found, ignore_index=True)


def _of_all(values: pd.DataFrame) -> pd.DataFrame:
    """The rows of methods that ran on all federations."""
    places = values.groupby("title")["federation"].nunique()
    everywhere = places.index[places == values["federation"].nunique()]
    return values[values["title"].isin(everywhere)]


def _order(values: pd.DataFrame, measure: str = ACCURACY) -> pd.Series:
    """Means over federations of the means over seeds, by method; more is better."""
    means = values.groupby(["title", "federation"])[measure].mean().groupby("title").mean()
    return -means if measure in LESS_IS_BETTER else means


def _without(values: pd.DataFrame, part: str) -> Iterator[dict]:
    """A row for each data set, or seed: the order without it, and its order alone."""
    for name in values[part].unique():
        mine = values[part] == name
        rest = _order(values[~mine])
        yield {
            "part": part,
            "name": str(name),
            "federations": values.loc[mine, "federation"].nunique(),
            "without": tau(_order(values), rest),
            "alone": tau(_order(values[mine]), rest),
        }


def _by_measure(values: pd.DataFrame) -> Iterator[dict]:
    """A row for each other measure."""
    for title, measure in MEASURES.items():
        yield {
            "part": "measure",
            "name": title,
            "federations": values["federation"].nunique(),
            "without": np.nan,
            "alone": tau(_order(values, measure), _order(values)),
        }


def tau(ours: pd.Series, theirs: pd.Series) -> float:
    """Kendall's tau-b of methods in both; NaN for fewer than two, or if one is unknown."""
    both = pd.concat([ours, theirs], axis=1, join="inner")
    if len(both) < 2 or both.isna().any(axis=None):
        return np.nan
    return float(stats.kendalltau(*both.to_numpy().T).statistic)


def _block(part: str, rows: pd.DataFrame) -> Block:
    heading, head = PARTS[part]
    return block(heading, _columns(head, rows))


def _columns(head: str, rows: pd.DataFrame) -> Columns:
    yield Column(head), texts(rows["name"])
    yield Column("federations"), texts(rows["federations"])
    for name in ("without", "alone"):
        yield Column(name), texts(_numbers(rows[name]))


def _numbers(values: Iterable[float]) -> Iterator[str]:
    for value in values:
        yield render.ABSENT if np.isnan(value) else f"{value:.2f}".replace("-", "−")
