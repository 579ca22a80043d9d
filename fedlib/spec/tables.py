"""The kinds of tables: what each is declared with. `fedlib.report.tables` has a module for each."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from fedlib.spec.exhibits import Exhibit, Pair, View, against, of_protocols

MEAN = "accuracy_client_mean"


class Table(Exhibit):
    """A table of the paper."""

    stage: ClassVar = "table"


@dataclass(frozen=True, kw_only=True)
class Accuracy(Table):
    """Accuracy of all clients and of the tenth worst: a block per federation, a row per method."""

    room_for_others: ClassVar = True
    compares: ClassVar = True


@dataclass(frozen=True, kw_only=True)
class AccuracyAndTraffic(Table):
    """Accuracy beside what was sent for it."""

    averaged: Mapping[str, Mapping] | None = None

    room_for_others: ClassVar = True


@dataclass(frozen=True, kw_only=True)
class BesidePublished(Table):
    """Accuracy beside the numbers of several publications."""

    sources: Sequence[Mapping]
    names: Mapping[str, str]
    metric: str = MEAN
    others: Mapping[str, str] | None = None

    room_for_others: ClassVar = True
    compares: ClassVar = True

    by_federation: ClassVar = ("names",)


@dataclass(frozen=True, kw_only=True)
class ClusterRecovery(Table):
    """Whether experts find planted clusters of clients."""

    choice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Criteria(Table):
    """Acceptance criteria; see `fedlib.papers._criteria` and `fedlib.report.tables.criteria`."""

    criteria: Sequence[Mapping]

    def views(self, federation: str, label: str) -> Iterator[View]:
        """What criteria ask of this run."""
        for term in self._terms():
            if (term["federation"], term["label"]) == (federation, label):
                yield View(**{name: term[name] for name in View._fields if name in term})

    def metrics(self) -> Iterator[str]:
        """Those of all criteria."""
        return (term["metric"] for term in self._terms() if "metric" in term)

    def _terms(self) -> Iterator[Mapping]:
        """Every number of a run that some criterion names."""
        for criterion in self.criteria:
            for term in criterion["terms"]:
                yield from [term] if isinstance(term, Mapping) else term


@dataclass(frozen=True, kw_only=True)
class Cost(Table):
    """Traffic and parameters; `personal`: of what clients keep, too."""

    personal: bool = False

    room_for_others: ClassVar = True


@dataclass(frozen=True, kw_only=True)
class Gains(Table):
    """By how much the run `of` is above groups of others."""

    of: str
    groups: Sequence[Mapping]
    metric: str = MEAN

    is_lead: ClassVar = True

    def compared(self, pairs: list[Pair]) -> list[Pair]:
        """Those of federations that have the run `of` and one of each group."""
        return against(self.of, [group["labels"] for group in self.groups], pairs)


@dataclass(frozen=True, kw_only=True)
class GlobalAccuracy(Table):
    """Accuracy of one model on the server's test examples."""

    columns: Sequence[Mapping]
    rows: Sequence[Mapping] | None = None
    head: str = "Method"
    average: str | None = None

    room_for_others: ClassVar = True
    of_server: ClassVar = True
    compares: ClassVar = True

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The state of the last round, of methods that choose another."""
        yield View("server", "last")

    def metrics(self) -> Iterator[str]:
        """Those of the columns."""
        return (column["metric"] for column in self.columns if "metric" in column)

    def compared(self, pairs: list[Pair]) -> list[Pair]:
        """All, if some column has its federation, or both where it is a difference."""
        there = {federation for federation, _ in pairs}
        columns = [{c["federation"], c.get("minus") or c["federation"]} for c in self.columns]
        return pairs if any(column <= there for column in columns) else []


@dataclass(frozen=True, kw_only=True)
class Headlines(Table):
    """Claims of a text, each a formula of cells."""

    claims: Sequence[Mapping]
    protocols: Sequence[Mapping]
    cells: str | None = None

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The protocols, and those that claims name."""
        yield from of_protocols(self.protocols)
        for claim in self.claims:
            for cell in claim["cells"]:
                if (cell["federation"], cell["label"]) == (federation, label):
                    yield View(protocol=cell["protocol"])


@dataclass(frozen=True, kw_only=True)
class Hyperparameters(Table):
    """Settings of the runs beside the printed ones."""

    columns: Sequence[Mapping]
    rows: Sequence[Mapping]


@dataclass(frozen=True, kw_only=True)
class Lead(Table):
    """By how much the run `of` is ahead of each other."""

    of: str
    claim: Mapping
    group: str = "seen"
    at: str = "best"

    is_lead: ClassVar = True

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The group."""
        yield View(self.group)


@dataclass(frozen=True, kw_only=True)
class LearnedAlpha(Table):
    """The weight that Fed-MoE learns for a client's own relevance."""


@dataclass(frozen=True, kw_only=True)
class Leakage(Table):
    """How well labels are read from updates."""


@dataclass(frozen=True, kw_only=True)
class ProtocolGrid(Table):
    """Protocols over a parameter of the federation."""

    protocols: Sequence[Mapping]
    parameter: str | None = None
    symbol: str | None = None
    group: str = "seen"

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The protocols, of the group."""
        yield View(self.group)
        yield from of_protocols(self.protocols, self.group)


@dataclass(frozen=True, kw_only=True)
class Protocols(Table):
    """Several ways to predict, beside each other; `protocols` maps their names to titles."""

    protocols: Mapping[str, str]
    group: str = "seen"

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The protocols, of the group."""
        yield View(self.group)
        yield from (View(self.group, name) for name in self.protocols)


@dataclass(frozen=True, kw_only=True)
class ServerSize(Table):
    """Parameters and traffic of methods with a server, beside the printed ones."""


@dataclass(frozen=True, kw_only=True)
class Sweep(Table):
    """Accuracy over a parameter of runs or federations."""

    parameter: str
    methods: Sequence[str]
    symbol: str | None = None
    of: str = "run"

    room_for_others: ClassVar = True
    compares: ClassVar = True

    def beside(self, label: str, method: str, like: str) -> Self:
        """With a further method, where it is the federations that differ."""
        return beside_in_sweep(self, super().beside(label, method, like), method)


@dataclass(frozen=True, kw_only=True)
class ToTarget(Table):
    """Rounds, traffic and arithmetic to a target accuracy, by federation."""

    targets: Mapping[str, float]
    metric: str = MEAN

    compares: ClassVar = True

    by_federation: ClassVar = ("targets",)


@dataclass(frozen=True, kw_only=True)
class Unseen(Table):
    """Accuracy of clients that took no part in training, by each protocol."""

    room_for_others: ClassVar = True
    compares: ClassVar = True

    def views(self, federation: str, label: str) -> Iterator[View]:
        """Unseen clients, by all protocols."""
        yield View("unseen", "*")


@dataclass(frozen=True, kw_only=True)
class Views(Table):
    """A column for each of some views."""

    columns: Sequence[Mapping]

    room_for_others: ClassVar = True

    def views(self, federation: str, label: str) -> Iterator[View]:
        """Those of the columns."""
        for column in self.columns:
            yield View(**{name: column[name] for name in View._fields if name in column})

    def metrics(self) -> Iterator[str]:
        """Those of the columns."""
        return (column["metric"] for column in self.columns if "metric" in column)


def beside_in_sweep(sweep: Exhibit, wider: Exhibit, method: str) -> Exhibit:
    """`wider` with a further method, if `sweep` is over federations; else `sweep`.

    A hyper-parameter that is swept is one that another method has not.
    """
    if sweep.of != "federation" or wider is sweep:
        return sweep
    return dataclasses.replace(wider, methods=[*wider.methods, method])
