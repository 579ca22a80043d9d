"""The table of acceptance criteria: what it is declared with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedlib.spec.exhibits import View
from fedlib.spec.tables import Table


@dataclass(frozen=True, kw_only=True)
class Criteria(Table):
    """Acceptance criteria; see `fedlib.papers._criteria` and `fedlib.report.tables.criteria`.

    Attributes:
      criteria: of each the "title", the "source" (where it was read), the "kind" (one of
        `fedlib.report.predicates.KINDS`, with its arguments) and the "terms" that are compared. A
        term is a cell, or two of which it is the difference: {"federation", "label"} of a run, and
        whatever is not as here: "metric" "accuracy" (of the metrics, or one of
        `fedlib.report.measures.MEASURES`), "at" "last", "group" "seen", "protocol" "default",
        "split" "test", "published" {"exhibit", "dataset", "label", "metric"} of what stands beside
        it. A criterion may have a "unit" ("percent", or "number" for what is no share), a "note",
        and a "published" number of its own in place of the cells'. "main" ones are about the
        paper's main claim, see `tests/standing.py`.
    """

    question: ClassVar = "Do these runs show what the paper says?"

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
