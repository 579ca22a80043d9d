"""The declaration of the table of acceptance criteria."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedlib.spec.exhibits import View
from fedlib.spec.tables import Table


@dataclass(frozen=True, kw_only=True)
class Criteria(Table):
    """Acceptance criteria; see `fedlib.papers._criteria` and `fedlib.report.tables.criteria`.

    Attributes:
      criteria: each has the "title", the "source" (where the paper says so), the "kind" (one of
        `fedlib.report.predicates.KINDS`, with its arguments) and the "terms" that are compared. A
        term is a cell, or a pair of cells whose difference it is. A cell has the "federation" and
        "label" of a run, and may have: "metric" (a metric or one of
        `fedlib.report.measures.MEASURES`; by default "accuracy"), "at" ("last"), "group" ("seen"),
        "protocol" ("default"), "split" ("test") and "published", the {"exhibit", "dataset",
        "label", "metric"} of its published number. A criterion may have a "unit" ("percent", or
        "number" for a value that is no share), a "note", and a "published" number in place of the
        cells'. Those with "main" are about the paper's main claim, see `tests/standing.py`.
    """

    question: ClassVar = "Do these runs show what the paper says?"

    criteria: Sequence[Mapping]

    def views(self, federation: str, label: str) -> Iterator[View]:
        """The views of the terms that are about this run."""
        for term in self._terms():
            if (term["federation"], term["label"]) == (federation, label):
                yield View(**{name: term[name] for name in View._fields if name in term})

    def metrics(self) -> Iterator[str]:
        """The metrics of all criteria."""
        return (term["metric"] for term in self._terms() if "metric" in term)

    def _terms(self) -> Iterator[Mapping]:
        """Every cell of all criteria."""
        for criterion in self.criteria:
            for term in criterion["terms"]:
                yield from [term] if isinstance(term, Mapping) else term
