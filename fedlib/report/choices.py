"""The run of each method on each federation, or the runs among which every client picks one.

In a row with "pick" every client picks by its own validation accuracy, never by test examples.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from fedlib.report import exhibits
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.spec import Data
from fedlib.spec.worlds import rows_left

COSTS = ("bytes", "flops", "personal_flops")


class Choice(NamedTuple):
    """The run or runs that a method shows on a federation.

    Attributes:
      row: of the exhibit's `rows`.
      labels: of the run, or of the runs among which every client picks one.
    """

    federation: Data
    row: Mapping
    labels: list[str]

    @property
    def about(self) -> dict[str, str]:
        """Its federation, data set and title, as columns name them."""
        names = {"federation": self.federation.name, "dataset": self.federation.dataset}
        return names | {"title": self.row["title"]}

    @property
    def picks(self) -> bool:
        """Whether every client picks one of the runs."""
        return bool(self.row.get("pick"))

    @property
    def label(self) -> str:
        """The run; "" if clients pick."""
        return "" if self.picks else self.labels[0]

    @property
    def protocol(self) -> str:
        """The way in which its method predicts."""
        return self.row.get("protocol", PRIMARY.protocol)


def choices(given: Inputs, rows: Sequence[Mapping]) -> list[Choice]:
    """A choice for each federation and row of the exhibit that ran on it, in order."""
    return [
        Choice(federation, row, row["labels"])
        for federation in given.exhibit.federations
        for row in rows_left(rows, exhibits.runs_of(given.exhibit, federation.name))
    ]


def rows_of(given: Inputs, choice: Choice, **where: str) -> pd.DataFrame:
    """The metrics of the run; no rows if clients pick."""
    return exhibits.pick(given.rows_on[choice.federation.name], label=choice.label, **where)


def of_clients(given: Inputs, choice: Choice, group: str = "seen") -> pd.DataFrame:
    """Test accuracies after the last round: a row for each seed and client, as in `scores`.

    A client without test examples has none.
    Where clients pick, each has its run of highest validation accuracy, the first of equals,
    and the first for a client without validation examples. There are no rows if the clients'
    validation accuracies are unknown.
    """
    which = choice.federation.name, group, choice.protocol
    test = given.scores[*which, "test"].query("count > 0")
    if not choice.picks:
        return exhibits.pick(test, label=choice.label)
    key = ["seed", "client"]
    val = given.scores[*which, "val"].pivot(index=key, columns="label", values="accuracy")
    if any(label not in val for label in choice.labels):
        return test.iloc[:0]
    best = val[choice.labels].fillna(-1).idxmax(axis=1).rename("label").reset_index()
    return test.merge(best, on=[*key, "label"])


def costs(given: Inputs, choice: Choice) -> dict[str, float]:
    """Bytes and FLOPs of training, with personal training; summed over runs where clients pick."""
    runs = [(choice.federation.name, label) for label in choice.labels]
    found = given.costs.reindex(runs, columns=COSTS).sum(min_count=1)
    return {"bytes": found["bytes"], "flops": found["flops"] + found.fillna(0)["personal_flops"]}
