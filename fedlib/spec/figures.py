"""The kinds of figures: what each is declared with.

`fedlib.report.figures` has a module for each.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fedlib.errors import ConfigError
from fedlib.spec.exhibits import (
    GROUPS,
    OF_CLIENTS,
    OF_SERVER,
    OWNERS,
    SPLITS,
    Exhibit,
    Pair,
    Protocol,
    Swept,
    View,
    against,
    of_protocols,
    one_of,
)


class Figure(Exhibit):
    """A figure of the paper."""

    stage: ClassVar = "figure"


@dataclass(frozen=True, kw_only=True)
class AccuracyOverBytes(Figure):
    """Accuracy over what was sent.

    Attributes:
      metric, protocol, split: which accuracy, see `fedlib.report.figures.curves`; the protocol must
        have been evaluated during training.
      unit: "MB" or "GB", see `fedlib.report.traffic.scaled`, which finds the one to read.
      scale: of the x axis, "log" or "linear"; linear where a panel has no amount that is ten
        times another.
      until: how much is shown of a federation, in the unit; all of it if it is not named.
      shaded: method whose runs are shades of its colour, see `fedlib.report.figures.style.looks`.
    """

    question: ClassVar = "How much has to be sent for an accuracy?"

    metric: str = "accuracy"
    protocol: str = "default"
    split: str = "test"
    unit: str = "MB"
    scale: str = "log"
    until: Mapping[str, float] | None = None
    shaded: str | None = None

    compares: ClassVar = True
    choices: ClassVar = {
        **{"metric": OF_CLIENTS, "split": SPLITS, "unit": ("MB", "GB"), "scale": ("log", "linear")}
    }

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
    """Accuracy over rounds.

    Attributes:
      metric, protocol, split: which accuracy, see `fedlib.report.figures.curves`; the protocol must
        have been evaluated during training.
      group: whose, "seen" clients' or the "server"'s.
      chosen: whether to mark the round whose model validation chose, of runs that select one.
      peaks: published exhibit with the highest points of the paper's curves.
      waypoints: published exhibit with points on the curves, as metrics "accuracy_round_20"; those
        beyond a run's last round are left out.
    """

    question: ClassVar = "How fast does each method learn, and where does it end?"
    compares: ClassVar = True

    metric: str = "accuracy"
    protocol: str = "default"
    split: str = "test"
    group: str = "seen"
    chosen: bool = False
    peaks: str | None = None
    waypoints: str | None = None

    choices: ClassVar = {"metric": OF_CLIENTS, "split": SPLITS, "group": GROUPS}

    @property
    def room_for_others(self) -> bool:
        """Whether every method has the predictor that is shown."""
        return self.protocol == "default" and self.group != "unseen"

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The one that is shown."""
        yield View(self.group, self.protocol, self.split)


@dataclass(frozen=True, kw_only=True)
class ClientAccuracyCdf(Figure):
    """How many clients have at most an accuracy.

    Attributes:
      unseen: also show the unseen clients (default protocol), dashed.
      protocols: show these of every run, see `fedlib.report.comparisons`, instead of the default
        one alone; a colour is a protocol then, and dashes tell runs apart.
      variants: which runs have the same dashes, see `fedlib.report.comparisons.variants`; those of
        the same label if not given.
    """

    question: ClassVar = "Which clients profit, and which are left behind?"

    unseen: bool = False
    protocols: Sequence[Mapping] | None = None
    variants: Mapping | None = None

    forms: ClassVar = {"protocols": Protocol}

    def check(self) -> None:
        """See `Exhibit.check`."""
        super().check()
        if self.unseen and self.protocols is not None:
            raise ConfigError("unseen clients cannot be told apart beside protocols")
        if self.variants is not None and self.protocols is None:
            raise ConfigError("variants need protocols")

    @property
    def room_for_others(self) -> bool:
        """Whether every method has the predictors that are shown."""
        return self.protocols is None

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The protocols."""
        yield from of_protocols(self.protocols or ())


@dataclass(frozen=True, kw_only=True)
class ClientDifferences(Figure):
    """By how much the run `of` is above each other, client by client.

    Attributes:
      of: label of the method; the exhibit's other runs are those it is compared with.
    """

    question: ClassVar = "For how many clients is the method better than the best baseline?"
    is_lead: ClassVar = True

    of: str

    def compared(self, pairs: list[Pair]) -> list[Pair]:
        """Those of federations that have the run `of` and another."""
        return against(self.of, (), pairs)


@dataclass(frozen=True, kw_only=True)
class ClientLabels(Figure):
    """Which classes each client has, and how many examples to train and to be tested on."""

    question: ClassVar = "How unlike are the clients' data?"
    shows_data: ClassVar = True


@dataclass(frozen=True, kw_only=True)
class CostToTarget(Figure):
    """Traffic and arithmetic to a target accuracy, by federation.

    Attributes:
      targets: see `fedlib.report.time_to_accuracy.costs`.
    """

    question: ClassVar = "What does it cost to reach a target accuracy?"
    compares: ClassVar = True
    by_federation: ClassVar = ("targets",)

    targets: Mapping[str, float]


class GainPair(NamedTuple):
    """Two federations."""

    below: str
    above: str


class GainBar(NamedTuple):
    """A metric, how its group of bars is called, and under which name its number is published."""

    metric: str
    title: str
    printed: str = ""


@dataclass(frozen=True, kw_only=True)
class GainBars(Figure):
    """What is gained from one federation to another.

    Attributes:
      pairs: of each what a `GainPair` has; bars: what a `GainBar` has.
      names: of what is below and above, for the legend.
      gains: published exhibit of the gains; the exhibit's own is of the federation below.
    """

    question: ClassVar = "What is gained where the conditions are better?"
    is_lead: ClassVar = True

    pairs: Sequence[Mapping]
    bars: Sequence[Mapping]
    names: Sequence[str]
    gains: str = ""

    forms: ClassVar = {"pairs": GainPair, "bars": GainBar}

    def check(self) -> None:
        """See `Exhibit.check`."""
        super().check()
        for bar in self.formed("bars"):
            one_of(OF_SERVER, bar.metric, "metric of a bar")
        if len(self.names) != 2:
            raise ConfigError(f"names are of what is below and above, got {self.names!r}")

    def metrics(self) -> Iterator[str]:
        """Those of the bars."""
        return (bar["metric"] for bar in self.bars)

    def compared(self, pairs: list[Pair]) -> list[Pair]:
        """All, if both federations of some pair are there."""
        there = {federation for federation, _ in pairs}
        return pairs if any({*pair.values()} <= there for pair in self.pairs) else []


@dataclass(frozen=True, kw_only=True)
class LabelLeakage(Figure):
    """Shares of labels that are read from clients' first updates, against the true ones."""

    question: ClassVar = "Can a client's labels be read from its first update?"


@dataclass(frozen=True, kw_only=True)
class ProtocolSweep(Figure):
    """Protocols over a parameter.

    Attributes:
      protocols: in legend order, see `fedlib.report.comparisons`.
      parameter, of: what is varied, a dotted path into the params of each "run" or "federation".
      symbol: how the paper calls the parameter ("J").
      panels: one per "federation" (per family, if the parameter is of the federations), variants
        told apart by dashes; or one per "variant", and of each family if there are several.
      variants: see `fedlib.report.comparisons.variants`; by labels if not given.
    """

    question: ClassVar = "Which way to predict is best?"

    protocols: Sequence[Mapping]
    parameter: str
    of: str = "run"
    symbol: str = ""
    panels: str = "federation"
    variants: Mapping | None = None

    choices: ClassVar = {"of": OWNERS, "panels": ("federation", "variant")}
    forms: ClassVar = {"protocols": Protocol}

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The protocols."""
        yield from of_protocols(self.protocols)


@dataclass(frozen=True, kw_only=True)
class Representations(Figure):
    """What the experts and their mixture make of the same examples, as t-SNE.

    Attributes:
      kinds: names of the recorded kinds of vectors, in their order.
    """

    question: ClassVar = "Do the experts see the same things?"

    kinds: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Sweep(Swept, Figure):
    """Accuracy over a parameter; its methods are in legend order.

    Attributes:
      symbol: how the paper calls the parameter ("M").
      metric: one of `fedlib.report.figures.curves.METRICS`.
    """

    symbol: str = ""
    metric: str = "accuracy"

    choices: ClassVar = {**Swept.choices, "metric": OF_CLIENTS}
