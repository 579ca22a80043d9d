"""The kinds of tables and figures of methods that choose among runs of their own by validation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedlib.spec.exhibits import View
from fedlib.spec.figures import Figure
from fedlib.spec.tables import Table
from fedlib.spec.worlds import OfMethods


@dataclass(frozen=True)
class Chosen(OfMethods):
    """What these kinds have in common: rows of `Regret`, with "home" left out.

    And "protocol", how a method predicts that does not do so by default.
    """

    def views(self, federation: str, label: str) -> Iterator[View]:
        """How methods predict for seen and for unseen clients, and what they choose by."""
        for row in self.rows:
            if label in row["labels"] and not row.get("pick"):
                protocol = row.get("protocol", "default")
                for group, split in (("seen", "test"), ("seen", "val"), ("unseen", "test")):
                    yield View(group, protocol, split)


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
class Pareto(Chosen, Figure):
    """Accuracy against what is sent and what is computed, means over all federations.

    Attributes:
      against: title of the row whose costs are 1.
    """

    question: ClassVar = "Which methods are worth what they send and compute?"

    rows: Sequence[Mapping]
    against: str


@dataclass(frozen=True, kw_only=True)
class Stability(Chosen, Table):
    """How alike orders of the methods are: without a data set, of one seed, by other measures."""

    question: ClassVar = "Would other data, another seed or another measure rank methods alike?"

    rows: Sequence[Mapping]

    def metrics(self) -> tuple[str, ...]:
        """Of single predictions."""
        return ("brier",)


@dataclass(frozen=True, kw_only=True)
class Claims(Chosen, Table):
    """Orders of methods that papers claim, over all federations.

    Attributes:
      claims: of each the "paper", and the titles of the rows "better" and "worse"; with no titles
        the "reason" why it was not tested.
    """

    question: ClassVar = "Do the papers' orders of methods hold on clients they did not choose?"
    room_for_others: ClassVar = False

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
