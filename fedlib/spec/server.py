"""The kinds of tables of a server that owns test examples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fedlib.spec.exhibits import (
    OF_SERVER,
    Pair,
    View,
    one_of,
)
from fedlib.spec.tables import Table


class ServerColumn(NamedTuple):
    """A column: the metric of a federation, `minus` that of another.

    Attributes:
      published: exhibit of its numbers, that of the table if left out; printed: the metric by which
        it has them, the same if left out; of: title of the setting that they are of ("M = 50"), if
        that is another one, from which there is no difference.
    """

    federation: str
    title: str
    metric: str = "accuracy"
    minus: str = ""
    published: str = ""
    printed: str = ""
    of: str = ""


class ServerRow(NamedTuple):
    """A run, its title (the run's if left out), and the label of its published number (its own)."""

    label: str
    title: str = ""
    printed: str = ""


@dataclass(frozen=True, kw_only=True)
class GlobalAccuracy(Table):
    """Accuracy of one model on the server's test examples.

    Attributes:
      columns: of each what a `ServerColumn` has.
      rows: of each what a `ServerRow` has; the exhibit's runs if not given.
      head: of the column of titles.
      average: published exhibit of the means over all columns, of the data set "all"; with it, or
        with "", these are shown too.
    """

    question: ClassVar = "How accurate is the model on the server's test examples?"
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
        for column in self.formed("columns"):
            one_of(OF_SERVER, column.metric, f"metric of the column {column.title!r}")

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
class ServerSize(Table):
    """Parameters and traffic of methods with a server, beside the printed ones."""

    question: ClassVar = "How large are the models, and what is sent?"
