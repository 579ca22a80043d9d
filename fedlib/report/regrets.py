"""Regret of methods that were run with several settings each: that of the setting they choose.

A method chooses by the mean validation accuracy of its seeds, on each federation for itself. No
test example has a say in it.
"""

import pandas as pd

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.inputs import Inputs
from fedlib.report.metrics import PRIMARY, over_seeds
from fedlib.results import OPTIMUM

RUN = ["federation", "label"]


def chosen(given: Inputs) -> pd.DataFrame:
    """A row for each method and federation that it was run on.

    Returns:
      Columns "federation", "title" (of the method), "label" (of the run that it chose; "" where
      every client chose its own), and of the regret, as `over_seeds` has it, "mean", "low" and
      "high".

    Raises:
      DataError: if a run has no regret, as its federation does not know the best accuracy.
    """
    scores = _numbers(given, "accuracy", "val").groupby(RUN)["value"].mean()
    found = []
    for federation, runs in _by_federation(given.exhibit).items():
        taken: list[str] = []  # by the methods so far
        for row in given.kind.rows:
            labels = [label for label in row["labels"] if label in runs]
            about = {"federation": federation, "title": row["title"]}
            if row.get("pick"):
                if some := [label for label in taken if label in labels]:
                    picked = picked_by_clients(given, federation, some)
                    found.append(picked.assign(**about, label=""))
            elif labels:
                several = len(labels) > 1
                best = max(labels, key=lambda x: scores[federation, x]) if several else labels[0]
                taken.append(best)
                found.append(_regret(given, federation, best).assign(**about, label=best))
    rows = pd.concat(found, ignore_index=True)
    return over_seeds(rows, ["federation", "title", "label"])


def picked_by_clients(given: Inputs, federation: str, labels: list[str]) -> pd.DataFrame:
    """Regret by seed if each client takes the run of its own best validation accuracy.

    Of equal ones it takes the first.
    """
    where = {"federation": federation, "at": "last", "group": "seen", "protocol": "default"}
    mine = exhibits.pick(given.client_rows, **where)
    mine = mine[mine["label"].isin(labels)]
    parts = {split: exhibits.pick(mine, split=split) for split in ("val", "test")}
    by_run = {
        split: part.pivot(index=["seed", "client"], columns="label", values="accuracy")[labels]
        for split, part in parts.items()
    }
    choice = by_run["val"].to_numpy().argmax(1)
    accuracy = by_run["test"].to_numpy()[range(len(choice)), choice]
    best = parts["test"].groupby(["seed", "client"])[OPTIMUM].first()
    regret = (best - accuracy).groupby("seed").mean()
    return regret.rename("value").reset_index()


def _numbers(given: Inputs, metric: str, split: str) -> pd.DataFrame:
    """A metric of the seen clients of all runs after the last round."""
    view = PRIMARY._replace(split=split)._asdict()
    return exhibits.pick(given.rows, at="last", metric=metric, **view)


def _regret(given: Inputs, federation: str, label: str) -> pd.DataFrame:
    """The regret of a run, a row for each seed."""
    found = exhibits.pick(_numbers(given, "regret", "test"), federation=federation, label=label)
    if found.empty:
        raise DataError(
            f"{federation}/{label} has no regret: nobody knows the best accuracy on its data"
        )
    return found[["seed", "value"]]


def _by_federation(exhibit: dict) -> dict[str, set[str]]:
    """The labels of the runs on each federation, in the order of the exhibit."""
    return {
        federation["name"]: {run["label"] for run in exhibits.runs_of(exhibit, federation["name"])}
        for federation in exhibit["federations"]
    }
