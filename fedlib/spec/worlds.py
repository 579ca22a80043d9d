"""The kinds of figures of made-up worlds, whose best possible accuracy is known."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedlib.spec.figures import Figure


@dataclass(frozen=True, kw_only=True)
class PhaseDiagram(Figure):
    """Which method is nearest the best possible one, by two parameters of made-up federations.

    Attributes:
      rows: the methods, see `Regret`.
      x, y: the parameters, dotted paths into the federations ("params.train_examples").
      names: of the x and the y axis.
      theory: at each y, the x where training alone is expected to overtake one model for all.
      law: the formula of that line, for the legend.
    """

    question: ClassVar = "When does a client profit from others, and from which method?"
    compares: ClassVar = True

    rows: Sequence[Mapping]
    x: str
    y: str
    names: Sequence[str]
    theory: Mapping[float, float]
    law: str

    def left(self, gone: Collection[str], runs: Sequence) -> dict[str, Any]:
        """The methods that are left."""
        return {"rows": rows_left(self.rows, runs)}


@dataclass(frozen=True, kw_only=True)
class Regret(Figure):
    """How far methods are below the best possible accuracy, where that is known.

    Attributes:
      rows: of each method its "title", the "labels" of its runs, which differ in how they are
        tuned, and "home", the federations that are as it assumes. Of several labels the one of the
        best validation accuracy is shown. With "pick", every client takes one of those that the
        rows above have chosen, by its own validation accuracy.
    """

    question: ClassVar = "Does each method win where its assumption holds, and what elsewhere?"
    compares: ClassVar = True

    rows: Sequence[Mapping]

    def left(self, gone: Collection[str], runs: Sequence) -> dict[str, Any]:
        """The methods that are left."""
        return {"rows": rows_left(self.rows, runs)}


def rows_left(rows: Sequence[Mapping], runs: Sequence) -> list[dict]:
    """The rows of `Regret` with the labels of these runs, where a row has one."""
    there = {run.label for run in runs}
    narrowed = [{**row, "labels": [x for x in row["labels"] if x in there]} for row in rows]
    return [row for row in narrowed if row["labels"]]
