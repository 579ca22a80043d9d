"""The values that tuning chose for each run, and its validation accuracy as declared and as tuned.

Accuracies are on the partition used for tuning, which no reported run uses; see `fedlib.run.tune`.
"""

from collections.abc import Iterator

import pandas as pd

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.metrics.runs import CHOSEN, TUNING
from fedlib.report.tables.render import NOT_APPLICABLE, Column, Sheet, percent, points
from fedlib.report.tables.sheets import Columns, TableInputs, texts
from fedlib.spec import Run


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have a row per federation and run.

    Raises:
      DataError: if a run is not tuned.
    """
    tuned = given.metrics[given.metrics["at"] == TUNING]
    numbers = given.numbers(lambda federation, run: _of_run(run, exhibits.of_run(tuned, run)))
    return given.sheet(
        numbers,
        given.blocks(numbers, _columns),
        "Validation accuracy of the seen clients after the last round, on a cut of its own: of the "
        "declared setting, and of the trial that was chosen by it, which is the highest by "
        "construction.",
        "Diverged: trials with a loss that was not finite. At an edge: chosen values in the outer "
        "tenth of their range, which may be too narrow.",
    )


def _of_run(run: Run, rows: pd.DataFrame) -> Iterator[dict]:
    """A summary of a run's trials."""
    if rows.empty:
        raise DataError(f"{exhibits.name(run)} is not tuned, or the metrics stage must run again")
    for _, mine in rows.groupby("seed"):  # a run may have a tuning for each seed
        is_chosen = mine["metric"] == CHOSEN
        of_trial, chosen = ~is_chosen & (mine["index"] != ""), mine[is_chosen]
        trials, value = mine[of_trial], mine[~of_trial].set_index(["metric", "of"])["value"]
        ended = trials[trials["round"] == trials["round"].max()].set_index("index")["value"]
        number = int(value["trial", ""])
        yield {
            "default": ended.get("0", float("nan")),
            "tuned": ended[str(number)],
            "trial": number,
            "trials": trials["index"].nunique(),
            "diverged": trials[trials["value"].isna()]["index"].nunique(),
            "at_edge": int(value["at_edge", ""]),
            "values": ", ".join(map(_describe, chosen["of"], chosen["index"], chosen["value"])),
        }


def _describe(name: str, word: str, value: float) -> str:
    """A chosen value, a word or a number, as text: "lr = 0.1"."""
    text = word or ("default" if pd.isna(value) else f"{value:.4g}")
    return f"{name.partition('.')[2]} = {text}"


def _columns(mine: pd.DataFrame) -> Columns:
    """A row per run."""
    accuracy = "Validation accuracy"
    yield Column("Method"), texts(mine["title"])
    mine = mine.assign(gain=mine["tuned"] - mine["default"])
    for title, text in (("default", percent), ("tuned", percent), ("gain", points)):
        written = (NOT_APPLICABLE if pd.isna(x) else text(x) for x in mine[title])
        yield Column(title, accuracy), texts(written)
    yield Column("Chosen"), texts(mine["values"])
    yield Column("Diverged"), texts(map("{} of {}".format, mine["diverged"], mine["trials"]))
    yield Column("At an edge"), texts(mine["at_edge"])
