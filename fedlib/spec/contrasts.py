"""The kinds of tables and figures of methods that choose among runs of their own by validation."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedlib.spec.exhibits import Exhibit, View, without
from fedlib.spec.figures import Figure
from fedlib.spec.tables import Table
from fedlib.spec.worlds import rows_left


@dataclass(frozen=True)
class Chosen(Exhibit):
    """What these kinds have in common.

    Attributes:
      rows: the methods, see `fedlib.spec.worlds.Regret`, "home" left out; "protocol" is how one
        predicts that does not do so by default.
    """

    compares: ClassVar = True

    def views(self, federation: str, label: str) -> Iterator[View]:
        """How methods predict for seen and for unseen clients, and what they choose by."""
        for row in self.rows:
            if label in row["labels"] and not row.get("pick"):
                protocol = row.get("protocol", "default")
                for group, split in (("seen", "test"), ("seen", "val"), ("unseen", "test")):
                    yield View(group, protocol, split)

    def left(self, gone: Collection[str], runs: Sequence) -> dict[str, Any]:
        """The methods that are left, and what is said of the federations that are."""
        kept = {name: without(gone, getattr(self, name)) for name in self.by_federation}
        return {"rows": rows_left(self.rows, runs), **kept}


@dataclass(frozen=True, kw_only=True)
class Standings(Chosen, Table):
    """Accuracy, who loses, newcomers, calibration and costs: a block per federation.

    Attributes:
      alone: title of the row that trains alone, which clients may be worse off than.
    """

    question: ClassVar = "How accurate is each method, for whom not, and at what cost?"

    rows: Sequence[Mapping]
    alone: str

    def metrics(self) -> tuple[str, ...]:
        """Of single predictions."""
        return ("brier", "ece", "ece_by_chance")


@dataclass(frozen=True, kw_only=True)
class Contrasts(Chosen, Table):
    """Methods against others over all federations, which are the sample.

    Attributes:
      of: titles of the rows that are compared; against: of those they are compared with.
      registered: what was fixed beforehand, in a sentence.
    """

    question: ClassVar = "Is a method better over federations like these, and by how much?"

    rows: Sequence[Mapping]
    of: Sequence[str]
    against: Sequence[str]
    registered: str


@dataclass(frozen=True, kw_only=True)
class ContrastPoints(Chosen, Figure):
    """The same as points and intervals; `of` and `against` as in `Contrasts`."""

    question: ClassVar = "Is a method better over federations like these, and by how much?"

    rows: Sequence[Mapping]
    of: Sequence[str]
    against: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Claims(Chosen, Table):
    """Orders of methods that papers claim, over all federations.

    Attributes:
      claims: of each the "paper", and the titles of the rows "better" and "worse"; with no titles
        the "reason" why it was not tested.
    """

    question: ClassVar = "Do the papers' orders of methods hold on clients they did not choose?"

    rows: Sequence[Mapping]
    claims: Sequence[Mapping]


@dataclass(frozen=True, kw_only=True)
class Advice(Chosen, Table):
    """What to run where, and whether following that would have helped.

    Attributes:
      of: titles of the rows that may be advised; against: of what is run otherwise.
      pick: title of the row in which clients pick.
      tags: in what the clients of each federation differ.
      rules: of each its "tag" ("" for all federations) and "sentence", how the page begins it.
    """

    question: ClassVar = "What is to be run where, and does that advice help on other federations?"
    by_federation: ClassVar = ("tags",)

    rows: Sequence[Mapping]
    of: Sequence[str]
    against: str
    pick: str
    tags: Mapping[str, Sequence[str]]
    rules: Sequence[Mapping]
