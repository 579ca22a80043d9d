"""Rules that recommend a method for a federation, and the regret of each way to decide.

The first block uses all federations; the others leave out the federation in question, or all
federations of its data set.
"""

from collections.abc import Iterator, Mapping

import pandas as pd

from fedlib.report import advice, contrasts, intervals
from fedlib.report.tables import render
from fedlib.report.tables.contrasts import spans
from fedlib.report.tables.render import Block, Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, block, texts

LEFT_OUT = {"federation": "the federation", "dataset": "all federations of its data set"}


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have a row for each rule, then for each way to decide."""
    kind = given.kind
    values = contrasts.accuracies(given, kind.rows)
    regrets = advice.tested(kind, values)
    rulings = pd.DataFrame(map(_ruling, advice.rulings(kind, values)))
    tests = pd.DataFrame(
        {"part": left_out, "name": way, "federations": len(part)}
        | {"mean": part["value"].mean(), "worst": part["value"].max()}
        for (left_out, way), part in regrets.groupby(["left_out", "way"], sort=False)
    )
    gains = {part: advice.gain(regrets, part, kind.against) for part in LEFT_OUT}
    about = {part: {"part": f"gain, {part}", "name": advice.FOLLOWED} for part in gains}
    leads = [pd.DataFrame([about[part] | gain]) for part, gain in gains.items() if gain]
    numbers = [rulings, tests, *leads]
    return given.sheet(
        pd.concat([part for part in numbers if len(part)], ignore_index=True),
        _blocks(rulings, tests),
        *_notes(kind.against, gains),
    )


def _blocks(rulings: pd.DataFrame, tests: pd.DataFrame) -> list[Block]:
    """The rules, and a block for each way to leave out."""
    blocks = [block("Rules", _rules(rulings), num_keys=2)] if len(rulings) else []
    for left_out, what in LEFT_OUT.items():
        mine = tests[tests["part"] == left_out] if len(tests) else tests
        if len(mine):
            blocks.append(block(f"Leaving out {what}", _ways(mine)))
    return blocks


def _notes(against: str, gains: Mapping[str, dict | None]) -> Iterator[str]:
    yield (
        f"Rules compare each method with {against}, on the federations with the rule's tag; "
        "verdicts are those of the table of contrasts."
    )
    yield (
        "Regret: points below the best method of that federation, mean and worst over federations. "
        "A rule is followed if it can tell anything without what is left out; with no winner, and "
        f"where no rule can tell, {against} is taken."
    )
    for part, gain in gains.items():
        if gain:
            ends = intervals.ends(gain["low"], gain["high"], render.points)
            yield (
                f"Leaving out {LEFT_OUT[part]}, following the rules is "
                f"{render.points(gain['mean'])} points {ends} ahead of always {against}, on "
                f"{gain['federations']} federations (data sets drawn again)."
            )


def _ruling(ruling: advice.Ruling) -> dict:
    """A row of the numbers."""
    about = {"part": "rules", "name": ruling.rule["sentence"], "title": ruling.title}
    return about | {"more": ruling.more, "near": "; ".join(ruling.near), **ruling.numbers}


def _rules(part: pd.DataFrame) -> Columns:
    yield Column("Clients"), texts(part["name"])
    yield Column("first"), texts(part["title"])
    yield Column("federations"), texts(part["federations"])
    yield Column("mean"), texts(map(render.points, part["mean"]))
    yield Column("95 % interval"), spans(part, "low", "high")
    for name in ("better", "equal", "worse"):
        yield Column(name, "P"), texts(f"{p:.2f}" for p in part[name])
    yield Column("verdict"), texts(part["verdict"])


def _ways(part: pd.DataFrame) -> Columns:
    yield Column("Way"), texts(part["name"])
    yield Column("federations"), texts(part["federations"])
    yield Column("mean regret"), texts(f"{100 * value:.1f}" for value in part["mean"])
    yield Column("worst"), texts(f"{100 * value:.1f}" for value in part["worst"])
