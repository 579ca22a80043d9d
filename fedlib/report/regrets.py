"""Regret of each method on each federation."""

import pandas as pd

from fedlib.errors import DataError
from fedlib.report.choices import Choice, choices, of_clients, rows_of
from fedlib.report.inputs import Inputs
from fedlib.report.metrics import PRIMARY, over_seeds
from fedlib.results import OPTIMUM


def chosen(given: Inputs) -> pd.DataFrame:
    """A row for each method and federation that it ran on.

    Returns:
      Columns "federation", "title" (of the method), "label" (of the run; "" if every client
      chose its own), and "mean", "low" and "high" of the regret, see `over_seeds`.

    Raises:
      DataError: if a run has no regret, because its federation has no known best accuracy.
    """
    found = []
    for choice in choices(given, given.kind.rows):
        regret = picked_by_clients if choice.picks else _regret
        found.append(regret(given, choice).assign(**choice.about, label=choice.label))
    rows = pd.concat(found, ignore_index=True)
    return over_seeds(rows, ["federation", "title", "label"])


def picked_by_clients(given: Inputs, choice: Choice) -> pd.DataFrame:
    """Regret by seed if each client takes the run of its own best validation accuracy."""
    mine = of_clients(given, choice)
    regret = (mine[OPTIMUM] - mine["accuracy"]).groupby(mine["seed"]).mean()
    return regret.rename("value").reset_index()


def _regret(given: Inputs, choice: Choice) -> pd.DataFrame:
    """The regret of a run, a row for each seed."""
    found = rows_of(given, choice, at="last", metric="regret", **PRIMARY._asdict())
    if found.empty:
        raise DataError(
            f"{choice.federation['name']}/{choice.label} has no regret: nobody knows the best "
            "accuracy on its data"
        )
    return found[["seed", "value"]]
