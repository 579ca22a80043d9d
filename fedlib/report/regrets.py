"""Regret of methods that were run with several settings each: that of the setting they choose.

A method chooses by the mean validation accuracy of its seeds, on each federation for itself. No
test example has a say in it.
"""

import pandas as pd

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.inputs import Inputs
from fedlib.report.metrics import PRIMARY, over_seeds

RUN = ["federation", "label"]


def chosen(given: Inputs) -> pd.DataFrame:
    """A row for each method and federation that it was run on.

    Returns:
      Columns "federation", "title" (of the method), "label" (of the run that it chose), and of the
      regret, as `over_seeds` has it, "mean", "low" and "high".

    Raises:
      DataError: if a run has no regret, as its federation does not know the best accuracy.
    """
    last = exhibits.pick(given.rows, at="last", **PRIMARY._asdict())
    regret = over_seeds(exhibits.pick(last, metric="regret"), RUN).set_index(RUN)
    validation = PRIMARY._replace(split="val")
    tuned = exhibits.pick(given.rows, at="last", metric="accuracy", **validation._asdict())
    scores = tuned.groupby(RUN)["value"].mean()
    found = []
    for federation, runs in _by_federation(given.exhibit).items():
        for row in given.kind.rows:
            own = [(federation, label) for label in row["labels"] if label in runs]
            if not own:
                continue
            best = max(own, key=scores.get) if len(own) > 1 else own[0]
            if best not in regret.index:
                raise DataError(
                    f"{'/'.join(best)} has no regret: nobody knows the best accuracy on its data"
                )
            about = {"federation": federation, "title": row["title"], "label": best[1]}
            found.append(about | regret.loc[best, ["mean", "low", "high"]].to_dict())
    return pd.DataFrame(found)


def _by_federation(exhibit: dict) -> dict[str, set[str]]:
    """The labels of the runs on each federation, in the order of the exhibit."""
    return {
        federation["name"]: {run["label"] for run in exhibits.runs_of(exhibit, federation["name"])}
        for federation in exhibit["federations"]
    }
