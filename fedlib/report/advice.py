"""Rules that recommend a method for a federation, and a test of whether following them helps.

A rule covers the federations that share a tag. It compares every method with a default method, and
takes the one of highest mean difference. To test the advice, a federation, or all federations of
its data set, are left out, and the rules are made of the others. The first rule with a matching tag
and a known verdict decides; if it has no winner, the default method is taken.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.report import contrasts, statistics
from fedlib.spec.contrasts import Advice

WINNERS = ("clear", "leaning")  # verdicts that recommend a method
FOLLOWED = "These rules"
PLANNED_LENGTH = 0.01  # half-width of an interval that settles one point
WAYS = ("federation", "dataset")  # units to leave out


class Ruling(NamedTuple):
    """The result of a rule.

    Attributes:
      title: the method of highest mean difference.
      verdict: on that method, see `fedlib.report.statistics.verdict`.
      numbers: of `contrasts.contrast`.
      near: other methods within one point of it.
      more: further federations needed for an interval of one point; NaN if unknown.
    """

    rule: Mapping
    title: str
    verdict: str
    numbers: dict
    near: list[str]
    more: float


def rulings(kind: Advice, values: pd.DataFrame) -> list[Ruling]:
    """The result of each rule on all federations with its tag; rules without any are left out."""
    found = (decide(kind, tagged(kind.tags, values, rule["tag"]), rule) for rule in kind.rules)
    return [ruling for ruling in found if ruling]


def tagged(tags: Mapping[str, Sequence[str]], values: pd.DataFrame, tag: str) -> pd.DataFrame:
    """The values of federations with a tag; of all federations for ""."""
    names = [name for name, own in tags.items() if not tag or tag in own]
    return values[values["federation"].isin(names)]


def decide(kind: Advice, values: pd.DataFrame, rule: Mapping) -> Ruling | None:
    """The result of a rule on these values; None if there is nothing to compare."""
    differences = {
        title: contrasts.paired(values, title, kind.against)
        for title in kind.of
        if title != kind.against
    }
    # Only methods that ran on all federations of the rule: comparisons must be of the same ones.
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
    near = [x for x in means if x != best and means[best] - means[x] <= statistics.ROPE]
    each = statistics.by_federation(differences[best])["value"]
    return Ruling(rule, best, numbers["verdict"], numbers, near, _more(each.to_numpy()))


def _more(values: np.ndarray) -> float:
    """Further federations for an interval of a mean of about one point to each side."""
    if len(values) < 2:
        return float("nan")
    needed = int(np.ceil((1.96 * values.std(ddof=1) / PLANNED_LENGTH) ** 2))
    return float(max(1, needed - len(values)))


def tested(kind: Advice, values: pd.DataFrame) -> pd.DataFrame:
    """Regret of each way to decide, on each federation left out.

    Returns:
      Columns "left_out" (of `WAYS`), "way", federation, dataset, "title" (the method taken) and
      "value", a regret: accuracy of the federation's best method less that of the method taken.
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
            candidates = [title for title in (*kind.of, kind.against) if title in mine]
            taken = {
                FOLLOWED: _followed(kind, others, federation, candidates),
                f"Always {kind.against}": kind.against,
                "Always the best on the others": _best_mean(others, candidates),
                kind.pick: kind.pick,
                "Best in hindsight": mine[candidates].idxmax() if candidates else "",
            }
            best = mine[[*candidates, *({kind.pick} & {*mine.index})]].max()
            rows += [
                {"left_out": left_out, "way": way, "federation": federation, "dataset": dataset}
                | {"title": title, "value": best - mine[title]}
                for way, title in taken.items()
                if title in mine
            ]
    columns = ["left_out", "way", "federation", "dataset", "title", "value"]
    return pd.DataFrame(rows, columns=columns)


def _followed(
    kind: Advice, others: pd.DataFrame, federation: str, candidates: Collection[str]
) -> str:
    """The method that rules made of other federations recommend for one federation."""
    tags = kind.tags.get(federation, ())
    for rule in kind.rules:
        if rule["tag"] and rule["tag"] not in tags:
            continue
        ruling = decide(kind, tagged(kind.tags, others, rule["tag"]), rule)
        if ruling and ruling.verdict != "unknown":
            winner = ruling.verdict in WINNERS and ruling.title in candidates
            return ruling.title if winner else kind.against
    return kind.against


def _best_mean(others: pd.DataFrame, candidates: Sequence[str]) -> str:
    """The candidate of highest mean accuracy over the federations that have all of them."""
    table = others.groupby(["federation", "title"])["value"].mean().unstack()
    complete = table[[title for title in candidates if title in table]].dropna()
    return complete.mean().idxmax() if len(complete) else ""


def gain(regrets: pd.DataFrame, left_out: str, against: str) -> dict | None:
    """Lead of following the page over always taking `against`; None if unknown.

    Returns:
      "mean", "low" and "high" (bootstrap over data sets; NaN if there is only one), in accuracy,
      and "federations", their number.
    """
    mine = regrets[regrets["left_out"] == left_out]
    wide = mine.pivot(index=["federation", "dataset"], columns="way", values="value")
    ways = [f"Always {against}", FOLLOWED]
    if not {*ways} <= {*wide.columns}:
        return None
    gains = (wide[ways[0]] - wide[ways[1]]).dropna().rename("value").reset_index()
    low, high = statistics.bootstrap(gains.assign(seed=0), "dataset")
    return {"mean": gains["value"].mean(), "low": low, "high": high, "federations": len(gains)}
