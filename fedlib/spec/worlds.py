"""The kinds of figures of made-up worlds, whose best possible accuracy is known."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from fedlib.spec.exhibits import Exhibit
from fedlib.spec.figures import Figure


@dataclass(frozen=True)
class OfMethods(Exhibit):
    """What kinds with a row for each method have in common.

    Attributes:
      rows: the methods, see `Regret`.
    """

    compares: ClassVar = True
    room_for_others: ClassVar = True

    def left(self, gone: Collection[str], runs: Sequence) -> dict[str, Any]:
        """The methods that are left, and what is said of the federations that are."""
        return super().left(gone, runs) | {"rows": rows_left(self.rows, runs)}

    def beside(self, label: str, method: str, title: str, like: str) -> Self:
        """With a row for a further method, which is compared with whatever others are."""
        wider = super().beside(label, method, title, like)
        if wider is self:
            return self
        compared = {"of": [*self.of, title]} if hasattr(self, "of") else {}
        row = {"title": title, "labels": [label], "home": []}
        return replace(wider, rows=[*self.rows, row], **compared)


@dataclass(frozen=True, kw_only=True)
class PhaseDiagram(OfMethods, Figure):
    """Which method is nearest the best possible one, by two parameters of made-up federations.

    Attributes:
      rows: the methods, see `Regret`.
      x, y: the parameters, dotted paths into the federations ("params.train_examples").
      names: of the x and the y axis.
      theory: at each y, the x where training alone is expected to overtake one model for all.
      law: the formula of that line, for the legend.
    """

    question: ClassVar = "When does a client profit from others, and from which method?"

    rows: Sequence[Mapping]
    x: str
    y: str
    names: Sequence[str]
    theory: Mapping[float, float]
    law: str


@dataclass(frozen=True, kw_only=True)
class Regret(OfMethods, Figure):
    """How far methods are below the best possible accuracy, where that is known.

    Attributes:
      rows: of each method its "title", the "labels" of its runs, which differ in how they are
        tuned, and "home", the federations that are as it assumes. Of several labels the one of the
        best validation accuracy is shown. With "pick", every client takes one of those that the
        rows above have chosen, by its own validation accuracy.
    """

    question: ClassVar = "Does each method win where its assumption holds, and what elsewhere?"

    rows: Sequence[Mapping]


def rows_left(rows: Sequence[Mapping], runs: Sequence) -> list[dict]:
    """The rows of `Regret` with the labels of these runs, where a row has one."""
    there = {run.label for run in runs}
    narrowed = [{**row, "labels": [x for x in row["labels"] if x in there]} for row in rows]
    return [row for row in narrowed if row["labels"]]
