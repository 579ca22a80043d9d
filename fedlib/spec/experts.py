"""The kinds of figures about experts, gates and mixture weights."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fedlib.spec.exhibits import View
from fedlib.spec.figures import Figure
from fedlib.spec.trainings import Run


@dataclass(frozen=True, kw_only=True)
class ClientMatrices(Figure):
    """Clients' mixture weights, sorted by planted cluster."""


@dataclass(frozen=True, kw_only=True)
class ClusterUsage(Figure):
    """Number of clients that choose each expert."""

    drawn_by: ClassVar = "ranked"


@dataclass(frozen=True, kw_only=True)
class ExpertWeights(Figure):
    """Weights that gates give to the local expert."""


@dataclass(frozen=True, kw_only=True)
class GateWeights(Figure):
    """Mean weights that gates give to experts."""

    drawn_by: ClassVar = "ranked"

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The mixtures of the gates."""
        yield View(protocol="moe")


@dataclass(frozen=True, kw_only=True)
class GradientDivergence(Figure):
    """Divergence of the clients' updates.

    Attributes:
      window: rounds of the moving mean, up to the round on the axis; 1 smooths nothing.
    """

    compares: ClassVar = True

    window: int = 50


@dataclass(frozen=True, kw_only=True)
class MixtureWeights(Figure):
    """Clients' mixture weights after training, as stacked bars."""


@dataclass(frozen=True, kw_only=True)
class TablesOverTime(Figure):
    """Tables that a method recorded after some rounds.

    Attributes:
      rounds: some of the rounds whose tables the runs recorded; by default all of them.
      rows, values: titles of the rows and of the values.
    """

    rounds: Sequence[int] | None = None
    rows: str = "Label"
    values: str = "q(expert | label)"

    def narrow(self, runs: Sequence[Run]) -> Self | None:
        """Without runs that end before the first round after which they record a table."""
        long = [run for run in runs if min(run.params.get("table_rounds") or [0]) <= run.rounds]
        return super().narrow(long)

    def changes(self, gone: Collection[str], runs: Sequence) -> dict[str, Any]:
        """The rounds that these runs reach."""
        if self.rounds is None:
            return {}
        return {"rounds": [n for n in self.rounds if all(n <= run.rounds for run in runs)]}
