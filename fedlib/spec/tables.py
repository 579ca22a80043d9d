"""The kinds of tables and their fields; modules of `fedlib.report.tables` make them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fedlib.errors import ConfigError
from fedlib.spec.exhibits import GROUPS, SPLITS, Exhibit, Pair, View, against, one_of


class Table(Exhibit, base=True):
    """A table of the paper."""

    stage: ClassVar = "table"


class ClientGrid(Table, base=True):
    """A grid of the clients' accuracy."""

    drawn_by: ClassVar = "of_clients"


@dataclass(frozen=True, kw_only=True)
class Accuracy(ClientGrid):
    """Accuracy over all clients and at the 10th percentile: a block per federation."""

    room_for_others: ClassVar = True
    compares: ClassVar = True


@dataclass(frozen=True, kw_only=True)
class AccuracyAndTraffic(Table):
    """Accuracy and traffic.

    Attributes:
      averaged: by federation, the number of last rounds whose evaluations are averaged; by default
        the last one.
    """

    room_for_others: ClassVar = True
    by_federation: ClassVar = ("averaged",)

    averaged: Mapping[str, int] | None = None

    def check(self) -> None:
        """See `Exhibit.check`."""
        super().check()
        if min((self.averaged or {}).values(), default=1) < 1:
            raise ConfigError(f"averaged must be at least one round each, got {self.averaged}")


@dataclass(frozen=True, kw_only=True)
class BesidePublished(ClientGrid):
    """Accuracy beside the numbers of several publications.

    Attributes:
      sources: each has a "name", a "mark" and a "title"; the first one with a number is shown.
      names: of the published exhibits, by federation; a federation may have none.
      others: titles of methods that are published but not run here, by label.
    """

    room_for_others: ClassVar = True
    compares: ClassVar = True
    by_federation: ClassVar = ("names",)

    sources: Sequence[Mapping]
    names: Mapping[str, str]
    others: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Cost(Table):
    """Traffic, arithmetic and parameters.

    Attributes:
      personal: whether to add the cost of clients' own training after the last round.
    """

    room_for_others: ClassVar = True

    personal: bool = False


class GainGroup(NamedTuple):
    """Other runs, by their labels; the published metrics are "<gain>_min" and "<gain>_max"."""

    title: str
    labels: Sequence[str]
    gain: str


@dataclass(frozen=True, kw_only=True)
class Gains(ClientGrid):
    """Lead of the run `of` over the best of each group of others.

    Attributes:
      of: label of the method.
      groups: each has the fields of a `GainGroup`.
    """

    needs_others: ClassVar = True

    of: str
    groups: Sequence[Mapping]

    forms: ClassVar = {"groups": GainGroup}

    def own_labels(self) -> Iterator[str]:
        """The label `of`, and those of the groups."""
        yield self.of
        for group in self.entries("groups"):
            yield from group.labels

    def keep_comparable(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs of federations that have the run `of` and one of each group."""
        return against(self.of, [group["labels"] for group in self.groups], pairs)


@dataclass(frozen=True, kw_only=True)
class LearnedAlpha(Table):
    """Fed-MoE's learned share α of the routed experts, beside the main one."""

    drawn_by: ClassVar = "of_server"


@dataclass(frozen=True, kw_only=True)
class ProtocolGrid(ClientGrid):
    """Protocols over a parameter of the federation.

    Attributes:
      protocols: in column order, see `fedlib.report.comparisons`.
      parameter: dotted path into the federations' declarations, with a row for each value and a
        block per family; by default a row is a federation, with its title.
    """

    protocols: Sequence[Mapping]
    parameter: str | None = None


class SpreadPair(NamedTuple):
    """Two ways to predict whose spreads are compared, each as "label/protocol".

    Attributes:
      title: of the column; less, more: which spread is below which; printed: the published metric.
    """

    title: str
    less: str
    more: str
    printed: str


@dataclass(frozen=True, kw_only=True)
class Spreads(ClientGrid):
    """How much less one way to predict varies from training to training than another.

    Attributes:
      pairs: in column order, each with the fields of a `SpreadPair`.
      key: label of the published numbers.
    """

    pairs: Sequence[Mapping]
    key: str

    needs_others: ClassVar = True
    forms: ClassVar = {"pairs": SpreadPair}

    def keep_comparable(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs of federations that have both runs of one of its pairs of spreads."""
        both = [{way.split("/")[0] for way in pair[1:3]} for pair in self.entries("pairs")]
        there = {name: {label for f, label in pairs if f == name} for name, _ in pairs}
        return [pair for pair in pairs if any(runs <= there[pair[0]] for runs in both)]

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The protocols of the pairs."""
        every = (one.split("/") for pair in self.entries("pairs") for one in pair[1:3])
        return (View(protocol=protocol) for run, protocol in every if run == label)


class ViewColumn(NamedTuple):
    """A column: its title, its view, and the `key` of its published numbers.

    The key is by default the protocol.
    """

    title: str
    group: str = "seen"
    protocol: str = "default"
    split: str = "test"
    metric: str = "accuracy_client_mean"
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Views(ClientGrid):
    """Views side by side.

    Attributes:
      columns: each has the fields of a `ViewColumn`.
    """

    room_for_others: ClassVar = True

    columns: Sequence[Mapping]

    forms: ClassVar = {"columns": ViewColumn}

    def check(self) -> None:
        """See `Exhibit.check`."""
        super().check()
        shown = self.entries("columns")
        for column in shown:
            where = f"of the column {column.title!r}"
            one_of(GROUPS, column.group, f"group {where}")
            one_of((*SPLITS, "shared"), column.split, f"split {where}")
            one_of(("accuracy_client_mean", "accuracy"), column.metric, f"metric {where}")
        titles = [column.title for column in shown]
        if not titles or len({*titles}) < len(titles):
            named = ", ".join(titles) or "no columns"
            raise ConfigError(f"columns must have different titles, got {named}")

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The views of the columns."""
        for column in self.columns:
            yield View(**{name: column[name] for name in View._fields if name in column})


@dataclass(frozen=True, kw_only=True)
class Tuning(Table):
    """The hyper-parameters that tuning chose, and their gain in validation accuracy."""

    room_for_others: ClassVar = True
