"""Published and reproduced accuracy of several protocols: a row per federation and run.

A protocol is a way to predict after training, see `fedlib.report.comparisons`; the protocols of a
row come from the same trainings. Deviations are over trials, which are seeds here.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd

from fedlib.report import comparisons, exhibits
from fedlib.report.metrics import PRIMARY
from fedlib.report.printed import off
from fedlib.report.tables import notes, render
from fedlib.report.tables.render import Block, Cell, Column, Sheet
from fedlib.report.tables.sheets import DIFFERENCE, TableInputs, is_compared, statistics

DECIMALS = 2  # as these papers print numbers
COMPARED = (
    DIFFERENCE,
    "Bold: highest of the row, published and reproduced apart.",
)


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation, run and protocol.

    The exhibit's `published` is a pattern, see `fedlib.report.comparisons.published`. Under each
    protocol's key are the published metrics "accuracy" and "accuracy_std", and "num_trials" of the
    label "all".

    Raises:
      ConfigError, DataError: see `fedlib.report.comparisons`.
    """
    exhibit, kind = given.exhibit, given.kind
    shown = comparisons.declared(kind.formed("protocols"))
    numbers = _numbers(given, shown).assign(metric=comparisons.MEAN, group=PRIMARY.group)
    head = "Data" if kind.parameter is None else kind.parameter.rpartition(".")[2]
    heads = {f["name"]: _head(f, kind.parameter) for f in exhibit["federations"]}
    compared = is_compared(numbers)
    return given.sheet(
        numbers,
        [
            _block(family, part.assign(head=part["federation"].map(heads)), shown, head)
            for family, part in _families(exhibit, numbers, whole=kind.parameter is None)
        ],
        _measured(exhibit),
        *comparisons.selection_note(exhibit),
        *(COMPARED if compared else ["Bold: highest of the row."]),
        exhibits.parameter_note(kind.parameter),
        *exhibits.published_note(exhibit, shown=compared),
    )


def _numbers(given: TableInputs, shown: list[comparisons.Protocol]) -> pd.DataFrame:
    """All numbers of the table, as fractions -> one row per federation, run and protocol."""
    found = comparisons.over_trials(comparisons.accuracies(given, shown))

    def of_run(federation: dict, run: dict) -> Iterator[dict]:
        number = partial(comparisons.published, given, federation, run["label"])
        trials = number("all", "num_trials")
        for protocol in shown:
            ours = statistics(found, (federation["name"], run["label"], protocol.name))
            theirs = number(protocol.key, "accuracy")
            yield {
                "title": f"{protocol.title} ({run['title']})",
                "run": run["title"],
                "protocol": protocol.name,
                "published": theirs,
                "published_std": number(protocol.key, "accuracy_std"),
                "published_trials": trials,
                **ours,
                "seeds": len(given.exhibit["seeds"]),
                "difference": off(ours["mean"], theirs, DECIMALS),
            }

    return given.numbers(of_run)


def _head(federation: dict, parameter: str | None) -> str:
    """The head of a federation's rows."""
    if parameter is None:
        return federation["title"]
    return exhibits.setting_text(exhibits.setting(parameter, federation))


def _families(exhibit: dict, numbers: pd.DataFrame, whole: bool):
    """(heading, rows) of each block: one per family, or a single one for the `whole`."""
    if whole:
        return [("", numbers)]
    families = {f["name"]: f["family"] for f in exhibit["federations"]}
    return list(numbers.groupby(numbers["federation"].map(families), sort=False))


def _block(
    heading: str, numbers: pd.DataFrame, shown: list[comparisons.Protocol], head: str
) -> Block:
    """A row per federation and run; published, reproduced and difference under each protocol.

    Without published numbers there is one column per protocol.
    """
    compared = is_compared(numbers)
    names = ("published", "reproduced", "difference")
    columns = [Column(head), Column("Run")]
    for protocol in shown:
        if compared:
            columns += [Column(name, protocol.title, "std") for name in names]
        else:
            columns.append(Column(protocol.title, spread="std"))
    columns += [Column(name, "Trials") for name in names[:2]] if compared else [Column("Trials")]
    rows = [
        _row(part, compared) for _, part in numbers.groupby(["federation", "label"], sort=False)
    ]
    return Block(heading, columns, rows, num_keys=2)


def _row(part: pd.DataFrame, compared: bool) -> list[Cell]:
    """The cells of one federation and run, whose protocols are the rows of `part`."""
    first = part.iloc[0]
    here = render.with_spreads(part, partial(render.percent, decimals=DECIMALS), spread="std")
    ours = render.best_cells(part["mean"].tolist(), here, DECIMALS)
    seeds = Cell(str(first["seeds"]))
    cells = [Cell(first["head"]), Cell(first["run"])]
    if not compared:
        return [*cells, *ours, seeds]
    printed = zip(part["published"], part["published_std"], strict=True)
    texts = [render.percent(mean, std, DECIMALS) for mean, std in printed]
    theirs = render.best_cells(part["published"].tolist(), texts, DECIMALS)
    for their, our, gain in zip(theirs, ours, part["difference"], strict=True):
        cells += [their, our, Cell(render.points(gain, DECIMALS))]
    trials = first["published_trials"]
    return [*cells, Cell(render.ABSENT if np.isnan(trials) else f"{trials:.0f}"), seeds]


def _measured(exhibit: dict) -> str:
    """The meaning of a number, and of the one after its ±."""
    spread = notes.spread(exhibit, "± the standard deviation over trials (n - 1)", "deviation")
    return (
        f"Percent, {comparisons.METRICS[comparisons.MEAN]}, on the test examples of the clients "
        f"that train, after the last round; {exhibits.seeds_text(exhibit)}: {spread}. "
        f"{exhibits.rounds_text(exhibit)}"
    )
