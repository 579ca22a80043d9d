"""Tables and figures that rank methods, and the runs of which each client picks by validation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedlib.spec.exhibits import Pair, View, against
from fedlib.spec.figures import Figure
from fedlib.spec.tables import Table
from fedlib.spec.worlds import OfMethods


@dataclass(frozen=True)
class Chosen(OfMethods, base=True):
    """Base class of these kinds: rows as in `Regret`, but without "home".

    A row may have a "protocol", by which its method predicts, in place of "default".
    """

    def views(self, federation: str, label: str) -> Iterator[View]:
        """Test examples of seen and unseen clients, and the validation examples for the choice."""
        for row in self.rows:
            if label in row["labels"] and not row.get("pick"):
                protocol = row.get("protocol", "default")
                for group, split in (("seen", "test"), ("seen", "val"), ("unseen", "test")):
                    yield View(group, protocol, split)


@dataclass(frozen=True, kw_only=True)
class Standings(Chosen, Table):
    """Accuracy, whom a method leaves worse off, unseen clients, calibration and costs.

    It has a block per federation.

    Attributes:
      alone: title of the row of local training; clients below it are worse off.
    """

    alone: str

    def metrics(self) -> tuple[str, ...]:
        """Metrics of single predictions."""
        return ("brier", "ece", "ece_by_chance")


@dataclass(frozen=True, kw_only=True)
class Contrasted(Chosen, base=True):
    """Base class of kinds that compare methods with others; the federations are the sample.

    Attributes:
      of: titles of the rows that are compared; against: titles of the rows they are compared with.
    """

    of: Sequence[str]
    against: Sequence[str]

    def keep_comparable(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs of federations that have the first of `against` and another run."""
        [label] = [row["labels"][0] for row in self.rows if row["title"] == self.against[0]]
        return against(label, (), pairs)


@dataclass(frozen=True, kw_only=True)
class Contrasts(Contrasted, Table):
    """The contrasts with intervals and tests.

    Attributes:
      registered: one sentence about the decisions that were fixed beforehand.
    """

    registered: str


@dataclass(frozen=True, kw_only=True)
class ContrastPoints(Contrasted, Figure):
    """The contrasts as points with intervals."""


@dataclass(frozen=True, kw_only=True)
class Claims(Chosen, Table):
    """Orders of methods that papers claim, over all federations.

    Attributes:
      claims: each has the "paper", and the titles of the rows "better" and "worse"; a claim without
        titles has the "reason" why it was not tested.
    """

    room_for_others: ClassVar = False

    claims: Sequence[Mapping]
