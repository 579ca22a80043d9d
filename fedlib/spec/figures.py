"""The kinds of figures: what each is declared with.

`fedlib.report.figures` has a module for each.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

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
    reached,
    without,
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
class AlphaOverRounds(Figure):
    """The weight that Fed-MoE learns for a client's own relevance, over rounds."""

    question: ClassVar = "How much does a client trust the experts that it chose?"


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
class ClientMatrices(Figure):
    """Clients' mixture weights, sorted by planted cluster."""

    question: ClassVar = "Do mixture weights find the planted clusters?"


@dataclass(frozen=True, kw_only=True)
class ClusterUsage(Figure):
    """How many clients choose each expert."""

    question: ClassVar = "Are all clusters used?"


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


@dataclass(frozen=True, kw_only=True)
class ExpertWeights(Figure):
    """How much gates trust the local expert."""

    question: ClassVar = "Does the gate trust the local expert or the shared one?"


@dataclass(frozen=True, kw_only=True)
class Exploration(Figure):
    """Which expert by rank clients choose while they explore."""

    question: ClassVar = "Do clients settle on a cluster?"


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
class GateWeights(Figure):
    """Mean weights that gates give to experts."""

    question: ClassVar = "Which experts does the gate trust?"

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The mixtures whose gates they are."""
        yield View(protocol="moe")


@dataclass(frozen=True, kw_only=True)
class GradientDivergence(Figure):
    """How unlike clients' updates are.

    Attributes:
      window: rounds, up to the one on the axis, over which the mean is taken; 1 smooths nothing.
    """

    question: ClassVar = "How much do the clients' updates disagree?"
    compares: ClassVar = True

    window: int = 50

    def check(self) -> None:
        """See `Exhibit.check`."""
        super().check()
        if self.window < 1:
            raise ConfigError(f"window must be at least 1 round, got {self.window}")


@dataclass(frozen=True, kw_only=True)
class LabelLeakage(Figure):
    """Shares of labels that are read from clients' first updates, against the true ones."""

    question: ClassVar = "Can a client's labels be read from its first update?"


@dataclass(frozen=True, kw_only=True)
class MixtureWeights(Figure):
    """Clients' mixture weights at the end, as stacked bars."""

    question: ClassVar = "How are clients' mixtures made up?"


@dataclass(frozen=True, kw_only=True)
class PhaseDiagram(Figure):
    """Which method is nearest the best possible one, by two parameters of made-up federations.

    Attributes:
      rows: the methods, see `Regret`.
      x, y: the parameters, dotted paths into the federations ("params.train_examples").
      names: of the x and the y axis.
      theory: at each y, the x where training alone is expected to overtake one model for all.
      law: the formula of that line, for the legend.
    """

    question: ClassVar = "When does a client profit from others, and from which method?"
    compares: ClassVar = True

    rows: Sequence[Mapping]
    x: str
    y: str
    names: Sequence[str]
    theory: Mapping[float, float]
    law: str

    def left(self, gone: Collection[str], runs: Sequence) -> dict[str, Any]:
        """The methods that are left."""
        return {"rows": rows_left(self.rows, runs)}


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
class Regret(Figure):
    """How far methods are below the best possible accuracy, where that is known.

    Attributes:
      rows: of each method its "title", the "labels" of its runs, which differ in how they are
        tuned, and "home", the federations that are as it assumes. Of several labels the one of the
        best validation accuracy is shown. With "pick", every client takes one of those that the
        rows above have chosen, by its own validation accuracy.
    """

    question: ClassVar = "Does each method win where its assumption holds, and what elsewhere?"
    compares: ClassVar = True

    rows: Sequence[Mapping]

    def left(self, gone: Collection[str], runs: Sequence) -> dict[str, Any]:
        """The methods that are left."""
        return {"rows": rows_left(self.rows, runs)}


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


@dataclass(frozen=True, kw_only=True)
class TablesOverTime(Figure):
    """Tables that a method recorded after some rounds.

    Attributes:
      rounds: which of those at which the runs recorded their tables; all of them if not given.
      rows, values: what the rows and the values of the tables are.
    """

    question: ClassVar = "What do experts take on in the course of training?"

    rounds: Sequence[int] | None = None
    rows: str = "Label"
    values: str = "q(expert | label)"

    def ends_too_early(self, run: Any) -> bool:
        """Whether the run ends before the first round after which it records a table."""
        rounds = run.params.get("table_rounds", ())
        return bool(rounds) and min(rounds) > run.rounds

    def left(self, gone: Collection[str], runs: Sequence) -> dict[str, Any]:
        """The rounds that these runs come to."""
        return {} if self.rounds is None else {"rounds": reached(self.rounds, runs)}


@dataclass(frozen=True, kw_only=True)
class WeightsOverRounds(Figure):
    """Relevance of experts to clients after some rounds; `rounds` by federation.

    Attributes:
      rounds: which of those at which the runs recorded their weights, by federation; all of them if
        not given.
    """

    question: ClassVar = "Which experts become relevant to which clients?"

    rounds: Mapping[str, Sequence[int]] | None = None

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


def rows_left(rows: Sequence[Mapping], runs: Sequence) -> list[dict]:
    """The rows of `Regret` with the labels of these runs, where a row has one."""
    there = {run.label for run in runs}
    narrowed = [{**row, "labels": [x for x in row["labels"] if x in there]} for row in rows]
    return [row for row in narrowed if row["labels"]]
