"""What to run where, by rules over federations, and whether following them would have helped.

A rule is about the federations that share a tag. It compares every method with what is run
otherwise, and takes the one of highest mean difference. The advice is tested by leaving out a
federation, or all of its data set: the rules are made of the others, the first whose tag fits and
that can tell anything is followed, and where it has no winner what is run otherwise is run.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.report import contrasts, statistics

WINNERS = ("clear", "leaning")  # verdicts with which a method is advised
FOLLOWED = "This page"
PLANNED_LENGTH = 0.01  # half of an interval that settles a point
WAYS = ("federation", "dataset")  # what is left out


class Asked(NamedTuple):
    """What is asked: the fields of `fedlib.spec.contrasts.Advice` of these names."""

    of: Sequence[str]
    against: str
    pick: str
    tags: Mapping[str, Sequence[str]]
    rules: Sequence[Mapping]

    def tagged(self, values: pd.DataFrame, tag: str) -> pd.DataFrame:
        """The values of federations with a tag; "" is all."""
        names = [name for name, own in self.tags.items() if not tag or tag in own]
        return values[values["federation"].isin(names)]


class Ruling(NamedTuple):
    """What a rule says.

    Attributes:
      title: the method that comes out first; verdict: what is said of it.
      numbers: of `contrasts.contrast`; near: other methods within a point of it.
      more: further federations that would bring its interval to a point; NaN if nobody knows.
    """

    rule: Mapping
    title: str
    verdict: str
    numbers: dict
    near: list[str]
    more: float


def rulings(asked: Asked, values: pd.DataFrame) -> list[Ruling]:
    """What each rule says of all federations with its tag; those without any are left out."""
    found = []
    for rule in asked.rules:
        ruling = decide(asked, asked.tagged(values, rule["tag"]), rule)
        found += [ruling] if ruling else []
    return found


def decide(asked: Asked, values: pd.DataFrame, rule: Mapping) -> Ruling | None:
    """What a rule says of these values; None if there is nothing to compare."""
    differences = {
        title: contrasts.paired(values, title, asked.against)
        for title in asked.of
        if title != asked.against
    }
    # Of all federations of the rule, or comparisons would be of different ones.
    most = max((each["federation"].nunique() for each in differences.values()), default=0)
    means = {
        title: statistics.by_federation(each)["value"].mean()
        for title, each in differences.items()
        if most and each["federation"].nunique() == most
    }
    if not means:
        return None
    best = max(means, key=lambda title: means[title])
    numbers = contrasts.contrast(differences[best])
    near = [
        title
        for title, mean in means.items()
        if title != best and means[best] - mean <= statistics.ROPE
    ]
    each = statistics.by_federation(differences[best])["value"]
    return Ruling(rule, best, numbers["verdict"], numbers, near, _more(each.to_numpy()))


def _more(values: np.ndarray) -> float:
    """Further federations so that the interval of a mean is a point to each side, about."""
    if len(values) < 2:
        return float("nan")
    needed = int(np.ceil((1.96 * values.std(ddof=1) / PLANNED_LENGTH) ** 2))
    return float(max(1, needed - len(values)))


def tested(asked: Asked, values: pd.DataFrame) -> pd.DataFrame:
    """How far below the best method each way to decide is, on each federation left out.

    Returns:
      Columns "left_out" (of `WAYS`), "way", federation, dataset, "title" (what was taken) and
      "value", a regret: the accuracy of the best method there less that of the one taken.
    """
    table = values.groupby(["federation", "title"])["value"].mean().unstack()
    datasets = values.groupby("federation")["dataset"].first()
    rows = []
    for left_out in WAYS:
        for federation, dataset in datasets.items():
            gone = [federation] if left_out == "federation" else datasets[datasets == dataset].index
            others = values[~values["federation"].isin(gone)]
            if others.empty:
                continue
            mine = table.loc[federation].dropna()
            candidates = [title for title in (*asked.of, asked.against) if title in mine]
            taken = {
                FOLLOWED: _followed(asked, others, federation, candidates),
                f"Always {asked.against}": asked.against,
                "Always the best on the others": _best_mean(others, candidates),
                asked.pick: asked.pick,
                "Best in hindsight": mine[candidates].idxmax() if candidates else "",
            }
            best = mine[[*candidates, *({asked.pick} & {*mine.index})]].max()
            rows += [
                {"left_out": left_out, "way": way, "federation": federation, "dataset": dataset}
                | {"title": title, "value": best - mine[title]}
                for way, title in taken.items()
                if title in mine
            ]
    columns = ["left_out", "way", "federation", "dataset", "title", "value"]
    return pd.DataFrame(rows, columns=columns)


def _followed(
    asked: Asked, others: pd.DataFrame, federation: str, candidates: Collection[str]
) -> str:
    """What the rules, made of other federations, advise for one."""
    tags = asked.tags.get(federation, ())
    for rule in asked.rules:
        if rule["tag"] and rule["tag"] not in tags:
            continue
        ruling = decide(asked, asked.tagged(others, rule["tag"]), rule)
        if ruling and ruling.verdict != "unknown":
            winner = ruling.verdict in WINNERS and ruling.title in candidates
            return ruling.title if winner else asked.against
    return asked.against


def _best_mean(others: pd.DataFrame, candidates: Sequence[str]) -> str:
    """The candidate of highest mean accuracy over the federations that have all of them."""
    table = others.groupby(["federation", "title"])["value"].mean().unstack()
    there = [title for title in candidates if title in table]
    return table[there].dropna().mean().idxmax() if len(table[there].dropna()) else ""


def gain(regrets: pd.DataFrame, left_out: str, against: str) -> dict | None:
    """By how much following the page is ahead of always the same; None if that is not known.

    Returns:
      "mean", "low" and "high" (by data sets that are drawn again; NaN if there is one alone), in
      accuracy, and "federations".
    """
    mine = regrets[regrets["left_out"] == left_out]
    wide = mine.pivot(index=["federation", "dataset"], columns="way", values="value")
    ways = [f"Always {against}", FOLLOWED]
    if not {*ways} <= {*wide.columns}:
        return None
    gains = (wide[ways[0]] - wide[ways[1]]).dropna().rename("value").reset_index()
    low, high = statistics.bootstrap(gains.assign(seed=0), "dataset")
    return {"mean": gains["value"].mean(), "low": low, "high": high, "federations": len(gains)}
