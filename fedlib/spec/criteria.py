"""The declaration of the table of acceptance criteria."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from fedlib.fields import as_form
from fedlib.spec.exhibits import PRIMARY, View, one_of
from fedlib.spec.tables import Table

ORDERS = ("descending", "ascending", "highest", "lowest")
KINDS = (*ORDERS, "between", "spread", "published", "seeds")
UNITS = ("percent", "number")


class Published(NamedTuple):
    """Where a number is among the published ones."""

    exhibit: str
    dataset: str
    label: str
    metric: str


class Number(NamedTuple):
    """A number of a run: one of a view, of `fedlib.report.measures.MEASURES`, or a cost.

    Attributes:
      averaged: number of last rounds whose evaluations are averaged, if `at` is "round".
      name: what it is called beside others; "" for the run's title.
    """

    federation: str
    label: str
    metric: str = "accuracy"
    at: str = "last"
    group: str = PRIMARY.group
    protocol: str = PRIMARY.protocol
    split: str = PRIMARY.split
    published: Published | None = None
    averaged: int = 1
    name: str = ""


class Criterion(NamedTuple):
    """A criterion about terms.

    Attributes:
      title: what it says; source: where the paper says so.
      kind: one of `KINDS`, see `fedlib.report.predicates.verdict`; its arguments come last.
      terms: each is a cell, or two whose difference it is.
      unit: "percent", or "number" for values that are no shares.
      note: said below the table.
      published: a published number in place of the cells'.
      main: whether it is about the paper's main claim, see `tests/standing.py`.
    """

    title: str
    source: str
    kind: str
    terms: Sequence[Sequence[Number]]
    unit: str = "percent"
    note: str = ""
    published: Published | None = None
    main: bool = False
    by: float = 0.0
    or_equal: bool = False
    at_least: float = -inf
    at_most: float = inf
    tolerance: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Criteria(Table):
    """Acceptance criteria; see `fedlib.papers._criteria` and `fedlib.report.tables.criteria`.

    Attributes:
      criteria: the fields of a `Criterion` each, a term being those of a `Number` or a list of two.
    """

    criteria: Sequence[Mapping]

    def check(self) -> None:
        """Check every criterion."""
        super().check()
        self.parse()

    def parse(self) -> list[Criterion]:
        """The criteria.

        Raises:
          ConfigError: for one with missing or unknown fields, or of an unknown kind or unit.
        """
        return [_parse(criterion) for criterion in self.criteria]

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The views of the terms that are about this run."""
        for cell in cells_of(self.criteria):
            if (cell["federation"], cell["label"]) == (federation, label):
                yield View(**{name: cell[name] for name in View._fields if name in cell})

    def metrics(self) -> Iterator[str]:
        """The metrics of all criteria."""
        return (cell["metric"] for cell in cells_of(self.criteria) if "metric" in cell)


def cells_of(criteria: Iterable[Mapping]) -> Iterator[Mapping]:
    """Every cell of the terms of criteria, each the fields of a `Number`."""
    for criterion in criteria:
        for term in criterion["terms"]:
            yield from _as_list(term)


def _parse(declared: Mapping) -> Criterion:
    name = f"criterion {declared.get('title', declared)!r}"
    found = as_form(Criterion, declared, name)
    one_of(KINDS, found.kind, f"{name}: kind")
    one_of(UNITS, found.unit, f"{name}: unit")
    terms = [_cells(term, name) for term in found.terms]
    return found._replace(terms=terms, published=_as_published(found.published, name))


def _cells(term: Mapping | Sequence[Mapping], name: str) -> list[Number]:
    cells = [as_form(Number, one, f"{name}: a cell") for one in _as_list(term)]
    return [cell._replace(published=_as_published(cell.published, name)) for cell in cells]


def _as_published(where: Mapping | None, name: str) -> Published | None:
    return where and as_form(Published, where, f"{name}: published")


def _as_list(term: Mapping | Sequence[Mapping]) -> Sequence[Mapping]:
    return [term] if isinstance(term, Mapping) else term
