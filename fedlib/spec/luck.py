"""The kinds of tables and figures about the luck of tuning."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedlib.spec.contrasts import Chosen
from fedlib.spec.exhibits import Pair
from fedlib.spec.figures import Figure
from fedlib.spec.tables import Table


@dataclass(frozen=True)
class OfTunings(Chosen, base=True):
    """Base class of these kinds: each method has two rows of the same title.

    The run of the row with "again" has a tuning for each seed (`Tuning.per_seed`), the run of the
    other row one for all seeds.
    """

    room_for_others: ClassVar = False
    drawn_by: ClassVar = "of_tunings"

    def keep_comparable(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs of a whole grid: of the methods with both runs on the federations with most."""
        title = {label: row["title"] for row in self.rows for label in row["labels"]}
        methods: dict[str, set[str]] = {federation: set() for federation, _ in pairs}
        for (federation, name), count in Counter((f, title[label]) for f, label in pairs).items():
            methods[federation] |= {name} if count == 2 else set()
        most = max(map(len, methods.values()), default=0)
        fullest = {federation: names for federation, names in methods.items() if len(names) == most}
        shown = set.intersection(*fullest.values()) if fullest else set()
        return [(f, label) for f, label in pairs if f in fullest and title[label] in shown]


@dataclass(frozen=True, kw_only=True)
class TuningLuck(OfTunings, Table):
    """The spread of accuracies by source: data sets, federations, tunings, trainings.

    Attributes:
      against: title of the method whose difference from the others is spread, too.
    """

    against: str


@dataclass(frozen=True, kw_only=True)
class Survival(OfTunings, Table):
    """Contrasts of methods that are tuned once, and what is left of them with other tunings.

    Attributes:
      of: titles of the methods that are compared; against: title of the one they are compared with.
      registered: one sentence about the decisions that were fixed beforehand.
    """

    of: Sequence[str]
    against: str
    registered: str

    def keep_comparable(self, pairs: list[Pair]) -> list[Pair]:
        """Those of the grid, if it has the method `against` and another one."""
        found = OfTunings.keep_comparable(self, pairs)
        labels = {label for _, label in found}
        titles = {row["title"] for row in self.rows if labels.intersection(row["labels"])}
        return found if {self.against} < titles else []


@dataclass(frozen=True, kw_only=True)
class RankIntervals(OfTunings, Figure):
    """The rank of each method, with intervals over tunings and over data sets."""


@dataclass(frozen=True, kw_only=True)
class BestOfTrials(OfTunings, Figure):
    """The expected best validation accuracy by number of trials."""
