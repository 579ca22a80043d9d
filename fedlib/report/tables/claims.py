"""Orders of methods that papers claim, each over all federations: holds, undecided or reversed.

A claim holds if the interval of the median difference, as printed, is above 0, and is reversed if
it is below.
"""

from collections.abc import Mapping

import pandas as pd

from fedlib.report import contrasts
from fedlib.report.printed import as_printed
from fedlib.report.tables import render
from fedlib.report.tables.contrasts import spans
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
    numbers = pd.DataFrame(_row(values, claim) for claim in kind.claims)
    return given.sheet(
        numbers,
        [block("", _columns(numbers), num_keys=2)],
        "Points of accuracy, the mean over seen clients: the first method less the second, the "
        "Hodges-Lehmann median over federations with its 95 % interval. Six federations or more "
        "have one. A claim holds if the interval as printed is above 0, and is reversed if it is "
        "below; otherwise, or without an interval, it is undecided.",
        UNTESTED_NOTE if (numbers["verdict"] == UNTESTED).any() else "",
    )


def _row(values: pd.DataFrame, claim: Mapping) -> dict:
    better, worse = claim.get("better", ""), claim.get("worse", "")
    text = f"{better} above {worse}" if better else claim["reason"]
    row = {"paper": claim["paper"], "claim": text, "verdict": UNTESTED, "federations": 0}
    differences = contrasts.paired(values, better, worse)
    if differences.empty:
        return row | dict.fromkeys(("ahead", "median", "low", "high"), float("nan"))
    found = contrasts.contrast(differences)
    row |= {name: found[name] for name in ("federations", "ahead", "median", "low", "high")}
    return row | {"verdict": verdict(found["low"], found["high"])}


def verdict(low: float, high: float) -> str:
    """The verdict of an interval, as printed, on a claim; an unknown one leaves it undecided."""
    if as_printed(low) > 0:
        return HOLDS
    return REVERSED if as_printed(high) < 0 else UNDECIDED


def _columns(part: pd.DataFrame) -> Columns:
    """The columns."""
    yield Column("Paper"), texts(part["paper"])
    yield Column("Claim"), texts(part["claim"])
    yield Column("federations"), texts(part["federations"])
    yield Column("median"), texts(map(render.points, part["median"]))
    yield Column("95 % interval"), spans(part, "low", "high")
    yield Column("verdict"), texts(part["verdict"])
