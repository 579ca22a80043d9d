"""The kinds of tables for a server with test examples of its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fedlib.spec.exhibits import OF_SERVER, Pair, View, one_of
from fedlib.spec.tables import Table


class ServerColumn(NamedTuple):
    """A column: the metric of a federation, `minus` that of another.

    Attributes:
      published: published exhibit of its numbers, by default the table's; printed: the published
        metric, by default `metric`; of: title of the published setting ("M = 50") if it is another
        one, which is shown without a difference.
    """

    federation: str
    title: str
    metric: str = "accuracy"
    minus: str = ""
    published: str = ""
    printed: str = ""
    of: str = ""


class ServerRow(NamedTuple):
    """A run.

    Attributes:
      title: by default the run's; printed: its published label, by default the run's.
      protocol: how it predicts at the end, and with "last_" before it after the last round; by
        default as the method does.
      elsewhere: by name of a federation, another whose run is shown in its columns.
    """

    label: str
    title: str = ""
    printed: str = ""
    protocol: str = ""
    elsewhere: Mapping[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class GlobalAccuracy(Table):
    """Accuracy of one model on the server's test examples.

    Attributes:
      columns: each has the fields of a `ServerColumn`.
      rows: each has the fields of a `ServerRow`; the exhibit's runs without one come last.
      head: of the column of titles.
      average: published exhibit of the means over all columns, for the data set "all"; "" shows the
        means without published numbers, None does not show them.
    """

    drawn_by: ClassVar = "of_server"
    room_for_others: ClassVar = True
    of_server: ClassVar = True
    compares: ClassVar = True

    columns: Sequence[Mapping]
    rows: Sequence[Mapping] | None = None
    head: str = "Method"
    average: str | None = None

    forms: ClassVar = {"columns": ServerColumn, "rows": ServerRow}

    def check(self) -> None:
        """See `Exhibit.check`."""
        super().check()
        for column in self.entries("columns"):
            one_of(OF_SERVER, column.metric, f"metric of the column {column.title!r}")

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The state of the last round, for methods that select an earlier one; rows' protocols."""
        yield View("server", "last")
        for row in self.rows or ():
            if row.get("protocol") and row["label"] == label:
                yield View("server", row["protocol"])
                yield View("server", f"last_{row['protocol']}")

    def keep_comparable(self, pairs: list[Pair]) -> list[Pair]:
        """All, if some column still has its federation, or both federations of a difference."""
        there = {federation for federation, _ in pairs}
        columns = [{c["federation"], c.get("minus") or c["federation"]} for c in self.columns]
        return pairs if any(column <= there for column in columns) else []


@dataclass(frozen=True, kw_only=True)
class ServerSize(Table):
    """Parameters and traffic of methods with a server, beside the published numbers."""

    drawn_by: ClassVar = "of_server"
