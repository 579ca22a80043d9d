"""The kinds of figures: what each is declared with.

`fedlib.report.figures` has a module for each.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fedlib.spec.exhibits import Exhibit, Pair, View, against, of_protocols, reached, without
from fedlib.spec.tables import MEAN, beside_in_sweep


class Figure(Exhibit):
    """A figure of the paper."""

    stage: ClassVar = "figure"


@dataclass(frozen=True, kw_only=True)
class AccuracyOverBytes(Figure):
    """Accuracy over what was sent."""

    metric: str = "accuracy"
    protocol: str = "default"
    split: str = "test"
    unit: str = "MB"
    scale: str = "log"
    until: Mapping[str, float] | None = None
    shaded: str | None = None

    compares: ClassVar = True

    @property
    def room_for_others(self) -> bool:
        """Whether every method has the predictor that is shown."""
        return self.protocol == "default"

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The one that is shown."""
        yield View("seen", self.protocol, self.split)

    by_federation: ClassVar = ("until",)


@dataclass(frozen=True, kw_only=True)
class AccuracyOverRounds(Figure):
    """Accuracy over rounds."""

    metric: str = "accuracy"
    protocol: str = "default"
    split: str = "test"
    group: str = "seen"
    chosen: bool = False
    until: Mapping[str, float] | None = None
    shaded: str | None = None
    peaks: str | None = None
    waypoints: str | None = None

    compares: ClassVar = True

    @property
    def room_for_others(self) -> bool:
        """Whether every method has the predictor that is shown."""
        return self.protocol == "default" and self.group != "unseen"

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The one that is shown."""
        yield View(self.group, self.protocol, self.split)

    by_federation: ClassVar = ("until",)


@dataclass(frozen=True, kw_only=True)
class AlphaOverRounds(Figure):
    """The weight that Fed-MoE learns for a client's own relevance, over rounds."""


@dataclass(frozen=True, kw_only=True)
class ClientAccuracyCdf(Figure):
    """How many clients have at most an accuracy."""

    unseen: bool = False
    protocols: Sequence[Mapping] | None = None
    variants: Mapping | None = None

    @property
    def room_for_others(self) -> bool:
        """Whether every method has the predictors that are shown."""
        return self.protocols is None

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The protocols."""
        yield from of_protocols(self.protocols or ())


@dataclass(frozen=True, kw_only=True)
class ClientDifferences(Figure):
    """By how much the run `of` is above each other, client by client."""

    of: str
    at: str = "last"

    is_lead: ClassVar = True

    def compared(self, pairs: list[Pair]) -> list[Pair]:
        """Those of federations that have the run `of` and another."""
        return against(self.of, (), pairs)


@dataclass(frozen=True, kw_only=True)
class ClientMatrices(Figure):
    """Clients' mixture weights, sorted by planted cluster."""

    weights: str = "pi"
    cluster: str = "cluster"
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class ClusterUsage(Figure):
    """How many clients choose each expert."""

    experts: str = "num_experts"
    choice: str = "choice"
    variants: Mapping | None = None
    group: str = "seen"

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The group."""
        yield View(self.group)


@dataclass(frozen=True, kw_only=True)
class CostToTarget(Figure):
    """Traffic and arithmetic to a target accuracy, by federation."""

    targets: Mapping[str, float]
    metric: str = MEAN

    compares: ClassVar = True

    by_federation: ClassVar = ("targets",)


@dataclass(frozen=True, kw_only=True)
class ExpertWeights(Figure):
    """How much gates trust the local expert."""

    bins: str = "local_weight_bins"
    means: str = "local_weights"
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Exploration(Figure):
    """Which expert by rank clients choose while they explore."""


@dataclass(frozen=True, kw_only=True)
class GainBars(Figure):
    """What is gained from one federation to another."""

    pairs: Sequence[Mapping]
    bars: Sequence[Mapping]
    names: Sequence[str]
    gains: str = ""

    is_lead: ClassVar = True

    def metrics(self) -> Iterator[str]:
        """Those of the bars."""
        return (bar["metric"] for bar in self.bars)

    def compared(self, pairs: list[Pair]) -> list[Pair]:
        """All, if both federations of some pair are there."""
        there = {federation for federation, _ in pairs}
        return pairs if any({*pair.values()} <= there for pair in self.pairs) else []


@dataclass(frozen=True, kw_only=True)
class GateWeights(Figure):
    """Mean weights that gates give to experts."""

    weights: str = "gate_weights"
    experts: str = "num_experts"
    variants: Mapping | None = None
    group: str = "seen"

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The mixtures whose gates they are."""
        yield View(self.group, "moe")


@dataclass(frozen=True, kw_only=True)
class GradientDivergence(Figure):
    """How unlike clients' updates are."""

    window: int = 50
    experts: str = "mean"
    until: Mapping[str, float] | None = None
    shaded: str | None = None

    compares: ClassVar = True

    by_federation: ClassVar = ("until",)


@dataclass(frozen=True, kw_only=True)
class LabelLeakage(Figure):
    """Shares of labels that are read from clients' first updates, against the true ones."""

    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class MixtureWeights(Figure):
    """Clients' mixture weights at the end, as stacked bars."""


@dataclass(frozen=True, kw_only=True)
class ProtocolSweep(Figure):
    """Protocols over a parameter."""

    protocols: Sequence[Mapping]
    parameter: str
    of: str = "run"
    symbol: str = ""
    panels: str = "federation"
    variants: Mapping | None = None
    metric: str = MEAN
    group: str = "seen"

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The protocols, of the group."""
        yield View(self.group)
        yield from of_protocols(self.protocols, self.group)


@dataclass(frozen=True, kw_only=True)
class Representations(Figure):
    """What the experts and their mixture make of the same examples, as t-SNE."""

    kinds: Sequence[str]
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Sweep(Figure):
    """Accuracy over a parameter of runs or federations."""

    parameter: str
    methods: Sequence[str]
    symbol: str = ""
    of: str = "run"
    at: str = "last"
    metric: str = "accuracy"

    room_for_others: ClassVar = True
    compares: ClassVar = True

    def beside(self, label: str, method: str, like: str) -> Self:
        """With a further method, where it is the federations that differ."""
        return beside_in_sweep(self, super().beside(label, method, like), method)


@dataclass(frozen=True, kw_only=True)
class TablesOverTime(Figure):
    """Tables that a method recorded after some rounds."""

    rounds: Sequence[int] | None = None
    rows: str = "Label"
    values: str = "q(expert | label)"
    seed: int | None = None

    def ends_too_early(self, run: Any) -> bool:
        """Whether the run ends before the first round after which it records a table."""
        rounds = run.params.get("table_rounds", ())
        return bool(rounds) and min(rounds) > run.rounds

    def left(self, gone: Collection[str], runs: Sequence) -> dict[str, Any]:
        """The rounds that these runs come to."""
        return {} if self.rounds is None else {"rounds": reached(self.rounds, runs)}


@dataclass(frozen=True, kw_only=True)
class WeightsOverRounds(Figure):
    """Relevance of experts to clients after some rounds; `rounds` by federation."""

    rounds: Mapping[str, Sequence[int]] | None = None
    seed: int | None = None

    def left(self, gone: Collection[str], runs: Sequence) -> dict[str, Any]:
        """Of the federations that are shown, the rounds that their runs come to."""
        if self.rounds is None:
            return {}
        return {
            "rounds": {
                name: reached(some, [run for run in runs if run.federation == name])
                for name, some in without(gone, self.rounds).items()
            }
        }
