"""Orders of methods that papers claim, each over all federations: holds, undecided or reversed.

A claim is decided if its p, adjusted by Holm for all claims that were tested, is at most 0.05, and
the median is not 0, as it may be where most federations are equal: the test leaves these out.
"""

from collections.abc import Mapping

import pandas as pd

from fedlib.report import contrasts, statistics
from fedlib.report.tables import render
from fedlib.report.tables.contrasts import intervals
from fedlib.report.tables.render import Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, block, texts

HOLDS, UNDECIDED, REVERSED, UNTESTED = "holds", "undecided", "reversed", "not tested"
UNTESTED_NOTE = (
    "Not tested: no federation here has runs of both methods, or the claim is about a server with "
    "data of its own, which these federations lack."
)


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have a row for each claim."""
    kind = given.kind
    values = contrasts.accuracies(given, kind.rows)
    numbers = judge(pd.DataFrame(_row(values, claim) for claim in kind.claims))
    return given.sheet(
        numbers,
        [block("", _columns(numbers), num_keys=2)],
        "Points of accuracy, the mean over seen clients: the first method less the second, the "
        "Hodges-Lehmann median over federations with its 95 % interval, which six federations or "
        "more have. p: Wilcoxon's signed-rank test, adjusted by Holm for all claims that were "
        "tested. A claim holds, or is reversed, if that is at most 0.05 and the median is not 0; "
        "the intervals are of each claim by itself.",
        UNTESTED_NOTE if (numbers["verdict"] == UNTESTED).any() else "",
    )


def _row(values: pd.DataFrame, claim: Mapping) -> dict:
    better, worse = claim.get("better", ""), claim.get("worse", "")
    text = f"{better} above {worse}" if better else claim["reason"]
    row = {"paper": claim["paper"], "claim": text, "federations": 0}
    differences = contrasts.subtract(values, better, worse)
    names = "ahead", "median", "low", "high", "p"
    if differences.empty:
        return row | dict.fromkeys(names, float("nan"))
    found = contrasts.contrast(differences)
    return row | {name: found[name] for name in ("federations", *names)}


def judge(numbers: pd.DataFrame) -> pd.DataFrame:
    """The claims with p_holm, adjusted for all that were tested, and verdict.

    Args:
      numbers: a row for each claim: median, and p, NaN if it was not tested.
    """
    tested = numbers["p"].notna()
    adjusted = pd.Series(statistics.holm(numbers.loc[tested, "p"]), numbers.index[tested])
    found = numbers.assign(p_holm=adjusted, verdict=UNTESTED)
    found.loc[tested, "verdict"] = UNDECIDED
    decided = found["p_holm"] <= 1 - statistics.LEVEL
    found.loc[decided & (found["median"] > 0), "verdict"] = HOLDS
    found.loc[decided & (found["median"] < 0), "verdict"] = REVERSED
    return found


def _columns(part: pd.DataFrame) -> Columns:
    """The columns."""
    yield Column("Paper"), texts(part["paper"])
    yield Column("Claim"), texts(part["claim"])
    yield Column("federations"), texts(part["federations"])
    yield Column("median"), texts(map(render.points, part["median"]))
    yield Column("95 % interval"), intervals(part, "low", "high")
    yield Column("p (Holm)"), texts(part["p_holm"], ".3g")
    yield Column("verdict"), texts(part["verdict"])
