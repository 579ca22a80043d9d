"""The kinds of tables: what each is declared with. `fedlib.report.tables` has a module for each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fedlib.errors import ConfigError
from fedlib.spec.exhibits import (
    GROUPS,
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


class Table(Exhibit):
    """A table of the paper."""

    stage: ClassVar = "table"


@dataclass(frozen=True, kw_only=True)
class Accuracy(Table):
    """Accuracy of all clients and of the tenth worst: a block per federation, a row per method."""

    question: ClassVar = "How accurate is each method, for all clients and for the worst tenth?"
    room_for_others: ClassVar = True
    compares: ClassVar = True


@dataclass(frozen=True, kw_only=True)
class AccuracyAndTraffic(Table):
    """Accuracy beside what was sent for it.

    Attributes:
      averaged: over which evaluations the accuracy is a mean, by federation: {"evaluations": the
        last so many} or {"rounds": those in the last so many rounds}; the last one alone for a
        federation that is not named.
    """

    question: ClassVar = "How accurate is each method, and what does it send?"
    room_for_others: ClassVar = True

    averaged: Mapping[str, Mapping] | None = None


@dataclass(frozen=True, kw_only=True)
class BesidePublished(Table):
    """Accuracy beside the numbers of several publications.

    Attributes:
      sources: of each the "name", the "mark" and the "title"; the first that has a number is shown.
      names: of the published exhibits, by federation; a federation may have none.
      others: titles of what is published but not run here, by label.
    """

    question: ClassVar = "How accurate is each method, beside what is published?"
    room_for_others: ClassVar = True
    compares: ClassVar = True
    by_federation: ClassVar = ("names",)

    sources: Sequence[Mapping]
    names: Mapping[str, str]
    others: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class ClusterRecovery(Table):
    """Whether experts find planted clusters of clients.

    Attributes:
      choice: column of the clients with the expert of each, of methods whose clients have one
        alone; then runs state their "num_experts". Without it the expert is the one of highest
        weight, of the columns "pi_0", ...
    """

    question: ClassVar = "Are the planted clusters found?"

    choice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Cost(Table):
    """Traffic and parameters; `personal`: of what clients keep, too.

    Attributes:
      personal: whether to show what clients train on their own after the last round, too.
    """

    question: ClassVar = "What does training cost in examples, arithmetic and traffic?"
    room_for_others: ClassVar = True

    personal: bool = False


@dataclass(frozen=True, kw_only=True)
class Gains(Table):
    """By how much the run `of` is above groups of others.

    Attributes:
      of: label of the method.
      groups: of each the "title", the "labels" among which the best is looked for, and "gain", the
        published metrics "<gain>_min" and "<gain>_max" of the exhibit's own published numbers.
    """

    question: ClassVar = "How far is the method above the best baseline?"
    is_lead: ClassVar = True

    of: str
    groups: Sequence[Mapping]

    def compared(self, pairs: list[Pair]) -> list[Pair]:
        """Those of federations that have the run `of` and one of each group."""
        return against(self.of, [group["labels"] for group in self.groups], pairs)


@dataclass(frozen=True, kw_only=True)
class Headlines(Table):
    """Claims of a text, each a formula of cells.

    Attributes:
      claims: [{"title", "formula": one of `FORMULAS`, "cells": two of {"federation", "label",
        "protocol": its name, "statistic": one of `STATISTICS`}, "published": {"label", "metric"},
        or left out if the text does not print it, "note": may be left out}].
      protocols: those in the cells, see `fedlib.report.comparisons`.
      cells: pattern of the published exhibits that hold the cells, see
        `fedlib.report.comparisons.Printed`.
    """

    question: ClassVar = "Do the claims of the text hold?"

    claims: Sequence[Mapping]
    protocols: Sequence[Mapping]
    cells: str | None = None

    forms: ClassVar = {"protocols": Protocol}

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The protocols, and those that claims name."""
        yield from of_protocols(self.protocols)
        for claim in self.claims:
            for cell in claim["cells"]:
                if (cell["federation"], cell["label"]) == (federation, label):
                    yield View(protocol=cell["protocol"])


@dataclass(frozen=True, kw_only=True)
class Hyperparameters(Table):
    """Settings of the runs beside the printed ones.

    Attributes:
      columns: [{"title": "Global", "key": label of the published numbers}], in order.
      rows: [{"title": "Learning rate", "key": metric of the published numbers, "paths": {key of a
        column: dotted path into `fedlib.spec.Run.describe`, "local.lr"}}], in order. What a column
        has no path for, it does not have.
    """

    question: ClassVar = "Which settings were used, and which did the paper print?"

    columns: Sequence[Mapping]
    rows: Sequence[Mapping]


@dataclass(frozen=True, kw_only=True)
class Lead(Table):
    """By how much the run `of` is ahead of each other.

    Attributes:
      of: label of the method that is ahead.
      claim: {"title", "exhibit", "dataset" and "metric" of the published number, "over": one of
        `OVER`}.
      group: whose accuracy.
      at: one of `WHEN`.
    """

    question: ClassVar = "How far is the method ahead of each other one?"
    is_lead: ClassVar = True

    of: str
    claim: Mapping
    group: str = "seen"
    at: str = "best"

    choices: ClassVar = {"group": GROUPS, "at": ("last", "best")}

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The group."""
        yield View(self.group)


@dataclass(frozen=True, kw_only=True)
class LearnedAlpha(Table):
    """The weight that Fed-MoE learns for a client's own relevance."""

    question: ClassVar = "Which share do clients learn?"


@dataclass(frozen=True, kw_only=True)
class Leakage(Table):
    """How well labels are read from updates."""

    question: ClassVar = "How much of its labels does a client give away?"


@dataclass(frozen=True, kw_only=True)
class PairedDifferences(Table):
    """By how much the run `of` is ahead of each other, with intervals over the same clients.

    Attributes:
      of: label of the method that the others are compared with.
      protocols: of every run, see `fedlib.report.comparisons`; that of `of` is the first. The
        default one alone if not given.
    """

    question: ClassVar = "How far is the method ahead on the same clients, and is that chance?"
    is_lead: ClassVar = True

    of: str
    protocols: Sequence[Mapping] | None = None

    forms: ClassVar = {"protocols": Protocol}

    @property
    def room_for_others(self) -> bool:
        """Whether every method has the predictors that are shown."""
        return self.protocols is None

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The protocols."""
        yield from of_protocols(self.protocols or ())

    def compared(self, pairs: list[Pair]) -> list[Pair]:
        """Those of federations that have the run `of` and another."""
        return against(self.of, (), pairs)


@dataclass(frozen=True, kw_only=True)
class ProtocolGrid(Table):
    """Protocols over a parameter of the federation.

    Attributes:
      protocols: in the order of columns, see `fedlib.report.comparisons`.
      parameter: of the federations, a dotted path into their declarations, whose values are the
        heads of rows; there is a block per family then. Without it the federations' titles are.
      symbol: how the paper calls the parameter; the last part of the path if not given.
      group: see `fedlib.report.comparisons.accuracies`.
    """

    question: ClassVar = "Which way to predict is best?"

    protocols: Sequence[Mapping]
    parameter: str | None = None
    symbol: str | None = None
    group: str = "seen"

    choices: ClassVar = {"group": GROUPS}
    forms: ClassVar = {"protocols": Protocol}

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The protocols, of the group."""
        yield View(self.group)
        yield from of_protocols(self.protocols, self.group)


@dataclass(frozen=True, kw_only=True)
class Protocols(Table):
    """Several ways to predict, beside each other; `protocols` maps their names to titles.

    Attributes:
      protocols: titles by name. "default" comes first and is what the others are compared with; the
        others are in the order of their names, as the keys of JSON have no order.
    """

    question: ClassVar = "Does it matter how clients predict?"

    protocols: Mapping[str, str]

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The protocols."""
        yield from (View(protocol=name) for name in self.protocols)


@dataclass(frozen=True, kw_only=True)
class Sweep(Swept, Table):
    """Accuracy over a parameter; its methods are in the order of columns or rows.

    Attributes:
      symbol: how the paper calls the parameter ("M"); its own name if not given.
    """

    symbol: str | None = None


@dataclass(frozen=True, kw_only=True)
class ToTarget(Table):
    """Rounds, traffic and arithmetic to a target accuracy, by federation.

    Attributes:
      targets: in (0, 1], of each federation.
    """

    question: ClassVar = "How soon is a target accuracy reached?"
    compares: ClassVar = True
    by_federation: ClassVar = ("targets",)

    targets: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Unseen(Table):
    """Accuracy of clients that took no part in training, by each protocol."""

    question: ClassVar = "How accurate are methods for clients that took no part in training?"
    room_for_others: ClassVar = True
    compares: ClassVar = True

    def views(self, federation: str, label: str) -> Iterator[View]:
        """Unseen clients, by all protocols."""
        yield View("unseen", "*")


class ViewColumn(NamedTuple):
    """A column: its title, whose accuracy it has, and the `key` of its published numbers.

    That is the protocol if left out.
    """

    title: str
    group: str = "seen"
    protocol: str = "default"
    split: str = "test"
    metric: str = "accuracy_client_mean"
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Views(Table):
    """A column for each of some views.

    Attributes:
      columns: of each what a `ViewColumn` has.
    """

    question: ClassVar = "How accurate is each method, seen in different ways?"
    room_for_others: ClassVar = True

    columns: Sequence[Mapping]

    forms: ClassVar = {"columns": ViewColumn}

    def check(self) -> None:
        """See `Exhibit.check`."""
        super().check()
        shown = self.formed("columns")
        for column in shown:
            for name, known in (
                ("group", GROUPS),
                ("split", (*SPLITS, "shared")),
                ("metric", ("accuracy_client_mean", "accuracy")),
            ):
                one_of(known, getattr(column, name), f"{name} of the column {column.title!r}")
        titles = [column.title for column in shown]
        if not titles or len({*titles}) < len(titles):
            named = ", ".join(titles) or "no columns"
            raise ConfigError(f"columns must have different titles, got {named}")

    def views(self, federation: str, label: str) -> Iterator[View]:
        """Those of the columns."""
        for column in self.columns:
            yield View(**{name: column[name] for name in View._fields if name in column})


@dataclass(frozen=True, kw_only=True)
class Tuning(Table):
    """What tuning chose of each run, and what that is worth by validation accuracy."""

    question: ClassVar = "What does tuning gain, and are the ranges wide enough?"
    room_for_others: ClassVar = True
