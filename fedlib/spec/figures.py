"""The kinds of figures and their fields; `fedlib.report.figures` has a module for each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

from fedlib.errors import ConfigError
from fedlib.spec import exhibits
from fedlib.spec.exhibits import Exhibit, Pair, View, against, one_of


class Figure(Exhibit, base=True):
    """A figure of the paper."""

    stage: ClassVar = "figure"


@dataclass(frozen=True, kw_only=True)
class Curves(Figure, base=True):
    """Base class of curves of accuracy.

    Attributes:
      metric, protocol, split: of the accuracy, see `fedlib.report.figures.curves`; the protocol
        must have been evaluated during training.
      group: "seen" for clients, or "server".
    """

    compares: ClassVar = True

    metric: str = "accuracy"
    protocol: str = "default"
    split: str = "test"
    group: str = "seen"

    choices: ClassVar = {
        "metric": exhibits.OF_CLIENTS,
        "split": exhibits.SPLITS,
        "group": exhibits.GROUPS,
    }

    @property
    def room_for_others(self) -> bool:
        """Whether every method has the predictor of the figure."""
        return self.protocol == "default" and self.group != "unseen"

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The view of the curves."""
        yield View(self.group, self.protocol, self.split)


@dataclass(frozen=True, kw_only=True)
class AccuracyOverBytes(Curves):
    """Accuracy over traffic.

    Attributes:
      scale: of the x axis, "log" or "linear"; all panels are linear in any case if the amounts of
        one of them span less than a factor of ten.
    """

    scale: str = "log"

    choices: ClassVar = {**Curves.choices, "scale": ("log", "linear")}


@dataclass(frozen=True, kw_only=True)
class AccuracyOverRounds(Curves):
    """Accuracy over rounds.

    Attributes:
      peaks: published exhibit with the highest points of the paper's curves.
      waypoints: published exhibit with points on the curves, as metrics "accuracy_round_20"; points
        beyond a run's last round are left out.
    """

    peaks: str | None = None
    waypoints: str | None = None


@dataclass(frozen=True, kw_only=True)
class ClientAccuracyCdf(Figure):
    """Distribution of the clients' accuracies: how many are at most so accurate.

    Attributes:
      protocols: of every run, see `fedlib.report.comparisons`, in place of the default one alone;
        then colours are protocols, and dashes tell runs apart.
      variants: groups of runs with the same dashes, see `fedlib.report.comparisons.variants`.
    """

    protocols: Sequence[Mapping] | None = None
    variants: Mapping | None = None

    def check(self) -> None:
        """See `Exhibit.check`."""
        super().check()
        if (self.variants is None) != (self.protocols is None):
            raise ConfigError("give protocols and variants together, or neither")

    @property
    def room_for_others(self) -> bool:
        """Whether every method has the predictors of the figure."""
        return self.protocols is None


@dataclass(frozen=True, kw_only=True)
class ClientDifferences(Figure):
    """Lead of the run `of` over the best other run, client by client.

    Attributes:
      of: label of the method that is compared with the best other one.
    """

    needs_others: ClassVar = True

    of: str

    def own_labels(self) -> Iterator[str]:
        """The label `of`."""
        yield self.of

    def keep_comparable(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs of federations that have the run `of` and another."""
        return against(self.of, (), pairs)


@dataclass(frozen=True, kw_only=True)
class CostToTarget(Figure):
    """Traffic and arithmetic to a target accuracy, by federation.

    Attributes:
      targets: in (0, 1], by federation.
    """

    compares: ClassVar = True
    by_federation: ClassVar = ("targets",)

    targets: Mapping[str, float]


class GainPair(NamedTuple):
    """Two federations."""

    below: str
    above: str


class GainBar(NamedTuple):
    """A metric, the title of its group of bars, and the name of its published number."""

    metric: str
    title: str
    printed: str = ""


@dataclass(frozen=True, kw_only=True)
class GainBars(Figure):
    """Gains from one federation to another.

    Attributes:
      pairs: each has the fields of a `GainPair`; bars: each has the fields of a `GainBar`.
      names: of the federations below and above, for the legend.
      gains: published exhibit of the gains; `published` has the numbers of the federations below.
    """

    needs_others: ClassVar = True

    pairs: Sequence[Mapping]
    bars: Sequence[Mapping]
    names: Sequence[str]
    gains: str = ""

    forms: ClassVar = {"pairs": GainPair, "bars": GainBar}

    def check(self) -> None:
        """See `Exhibit.check`."""
        super().check()
        for bar in self.entries("bars"):
            one_of(exhibits.OF_SERVER, bar.metric, "metric of a bar")
        if len(self.names) != 2:
            raise ConfigError(f"names are of what is below and above, got {self.names!r}")

    def keep_comparable(self, pairs: list[Pair]) -> list[Pair]:
        """All, if both federations of some pair are left."""
        there = {federation for federation, _ in pairs}
        return pairs if any({*pair.values()} <= there for pair in self.pairs) else []


@dataclass(frozen=True, kw_only=True)
class LabelLeakage(Figure):
    """Label shares inferred from clients' first updates, against the true ones."""


@dataclass(frozen=True, kw_only=True)
class ProtocolSweep(Figure):
    """Protocols over a parameter.

    Attributes:
      protocols: in legend order, see `fedlib.report.comparisons`.
      parameter, of: the varied parameter, a dotted path into the params of each "run" or
        "federation".
      symbol: the paper's name of the parameter ("J").
      panels: "federation" for a panel per federation (per family, if the parameter is the
        federations'), where dashes tell variants apart; "variant" for one per variant, and per
        family if there are several.
      variants: see `fedlib.report.comparisons.variants`.
    """

    protocols: Sequence[Mapping]
    parameter: str
    of: str = "run"
    variants: Mapping
    symbol: str = ""
    panels: str = "federation"

    needs_others: ClassVar = True
    choices: ClassVar = {"of": exhibits.OWNERS, "panels": ("federation", "variant")}


@dataclass(frozen=True, kw_only=True)
class Representations(Figure):
    """t-SNE of the representations that experts and their mixture have of the same examples.

    Attributes:
      kinds: names of the recorded kinds of vectors, in order.
    """

    kinds: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Sweep(Figure):
    """Accuracy over a parameter of runs or federations.

    Attributes:
      parameter, of: the varied parameter, and its owner, "run" or "federation"; see
        `fedlib.report.exhibits.place_runs`.
      methods: registry names, in legend order.
      symbol: the paper's name of the parameter ("M").
      metric: one of `fedlib.report.figures.curves.METRICS`.
    """

    room_for_others: ClassVar = True
    compares: ClassVar = True

    parameter: str
    methods: Sequence[str]
    of: str = "run"
    symbol: str = ""
    metric: str = "accuracy"

    choices: ClassVar = {"of": exhibits.OWNERS, "metric": exhibits.OF_CLIENTS}

    def keep_comparable(self, pairs: list[Pair]) -> list[Pair]:
        """All, if there are several values of the parameter."""
        varied = {pair[0 if self.of == "federation" else 1] for pair in pairs}
        return pairs if len(varied) > 1 else []

    def beside(self, label: str, method: str, title: str, like: str) -> Self:
        """The exhibit with one more run, and its method if the parameter is the federations'.

        Other methods lack the swept hyper-parameter of a run.
        """
        wider = super().beside(label, method, title, like)
        if self.of != "federation" or wider is self:
            return self
        return replace(wider, methods=[*wider.methods, method])
