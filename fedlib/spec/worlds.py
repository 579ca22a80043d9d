"""The kinds of figures for made-up worlds, whose best possible accuracy is known."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from fedlib.spec.exhibits import Exhibit
from fedlib.spec.figures import Figure


@dataclass(frozen=True, kw_only=True)
class OfMethods(Exhibit, base=True):
    """Base class of kinds with a row for each method.

    Attributes:
      rows: the methods, see `Regret`.
    """

    compares: ClassVar = True
    room_for_others: ClassVar = True

    rows: Sequence[Mapping]

    def changes(self, gone: Collection[str], runs: Sequence) -> dict[str, Any]:
        """The rows and values by federation that are left; "Title: ..." in a caption is a row's."""
        rows = rows_left(self.rows, runs)
        lost = {row["title"] for row in self.rows} - {row["title"] for row in rows}
        kept = (x for x in re.split(r"(?<=\.) ", self.caption) if x.partition(":")[0] not in lost)
        return super().changes(gone, runs) | {"rows": rows, "caption": " ".join(kept)}

    def beside(self, label: str, method: str, title: str, like: str) -> Self:
        """The exhibit with a row for one more method, which joins the compared ones in `of`."""
        wider = super().beside(label, method, title, like)
        if wider is self:
            return self
        compared = {"of": [*self.of, title]} if hasattr(self, "of") else {}
        row = {"title": title, "labels": [label], "home": []}
        return replace(wider, rows=[*self.rows, row], **compared)


@dataclass(frozen=True, kw_only=True)
class PhaseDiagram(OfMethods, Figure):
    """The method nearest the best possible one, by two parameters of made-up federations.

    Attributes:
      x, y: the parameters, dotted paths into the federations ("params.train_examples").
      names: of the x and the y axis.
      theory: by y, the x at which local training is expected to overtake one model for all.
      law: the formula of that line, for the legend.
    """

    x: str
    y: str
    names: Sequence[str]
    theory: Mapping[float, float]
    law: str


@dataclass(frozen=True, kw_only=True)
class Regret(OfMethods, Figure):
    """Distance of methods from the best possible accuracy, where it is known.

    Attributes:
      rows: each has a method's "title", the "labels" of its run, and "home", the federations that
        meet its assumption. With "pick", every client picks one of the runs of the rows above that
        "labels" names, by its own validation accuracy.
    """


def rows_left(rows: Sequence[Mapping], runs: Sequence) -> list[dict]:
    """The rows of `Regret` with only the labels of these runs.

    Rows without labels are left out, as are those of a pick that lacks a run.
    """
    there = {run.label for run in runs}
    left = [[x for x in row["labels"] if x in there] for row in rows]
    least = [len(row["labels"]) if row.get("pick") else 1 for row in rows]
    narrowed = zip(rows, left, least, strict=True)
    return [{**row, "labels": own} for row, own, least in narrowed if len(own) >= least]
