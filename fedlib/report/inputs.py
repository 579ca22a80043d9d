"""The inputs of a table or figure.

The kind `cost` of tables is the class `Cost` of `fedlib.spec.tables`, which has its fields, and the
module `fedlib.report.tables.cost`, whose function makes the table; grids share a few modules.
"""

import importlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import pandas as pd

from fedlib.errors import DataError
from fedlib.report import exhibits, frames, printed
from fedlib.report.metrics.tidy import TRAFFIC
from fedlib.spec import Data, Run
from fedlib.spec.exhibits import ExhibitSpec, from_kind


@dataclass(frozen=True)
class Inputs:
    """The inputs of a table or figure.

    Attributes:
      exhibit: see `fedlib.report.exhibits`.
      metrics, clients: frames, see `fedlib.report.metrics`.
      published: the paper's own numbers, see `fedlib.report.printed`; None if it has none.
      curves: the paper's own, see `fedlib.report.printed.curves`; of a figure.
      stage: "table" or "figure".
    """

    exhibit: ExhibitSpec
    metrics: pd.DataFrame
    clients: pd.DataFrame
    published: pd.DataFrame | None
    curves: pd.DataFrame | None = None

    stage: ClassVar[str]

    @classmethod
    def read(cls, exhibit: Mapping, metrics: Path, clients: Path, published: Path | None) -> Self:
        """The inputs from files.

        Args:
          exhibit: the JSON object of an `ExhibitSpec`.

        Raises:
          DataError: if a file is missing, damaged or of another specification.
        """
        spec = ExhibitSpec.from_json(exhibit)
        return cls(
            spec,
            frames.read_of(metrics, spec.metrics, ("metric", "index", "value")),
            frames.read_of(clients, spec.metrics, ("client",)),
            printed.read(published) if published else None,
            printed.curves(published) if published and cls.stage == "figure" else None,
        )

    @cached_property
    def kind(self) -> Any:
        """The fields of its kind, a class of `fedlib.spec`.

        Raises:
          ConfigError: for an unknown kind or wrong fields.
        """
        about = self.exhibit
        return from_kind(self.stage, about.kind, about.params, about.title, about.caption, (), ())

    @property
    def module(self) -> Any:
        """The module of its kind."""
        return importlib.import_module(self.kind.module_name())

    def function(self, name: str) -> Callable:
        """The module's function `name` or, in a module of several kinds, the one of this kind."""
        return getattr(self.module, name, None) or getattr(self.module, self.kind.kind)

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The metrics of the exhibit's runs and seeds.

        Raises:
          DataError: if a run has no metrics.
        """
        return exhibits.select(self.exhibit, self.metrics)

    @cached_property
    def rows_on(self) -> dict[str, pd.DataFrame]:
        """`rows` by federation."""
        return dict(iter(self.rows.groupby("federation")))

    @cached_property
    def costs(self) -> pd.DataFrame:
        """Costs after the last round, means over seeds, by federation and label."""
        rows = exhibits.pick(self.rows, at="last", **TRAFFIC._asdict())
        return rows.pivot_table("value", ["federation", "label"], "metric")

    @cached_property
    def client_rows(self) -> pd.DataFrame:
        """The same rows of `clients`."""
        return exhibits.select(self.exhibit, self.clients)

    @cached_property
    def scores(self) -> dict[tuple[str, str, str, str], pd.DataFrame]:
        """`client_rows` after the last round, by federation, group, protocol and split.

        They are without the columns of arrays ("pi_0").
        """
        last = exhibits.pick(self.client_rows, at="last").filter(regex=r"^\D+$")
        parts = last.groupby(["federation", "group", "protocol", "split"])
        return defaultdict(lambda: last[:0], iter(parts))

    def paper_numbers(self, metric: str = "accuracy") -> dict[tuple[str, str], printed.Value]:
        """The exhibit's own published numbers, by data set and label."""
        return printed.fractions(self.published, self.exhibit.published, metric)

    def records(self, run: Run, name: str, **where: object) -> pd.DataFrame:
        """A run's records by round of the metric `name`.

        Raises:
          DataError: if no record matches `where`.
        """
        rows = exhibits.pick(self.rows, at="round", metric=name, **TRAFFIC._asdict(), **where)
        mine = exhibits.of_run(rows, run)
        if mine.empty:
            raise DataError(
                f"{exhibits.name(run)} recorded no {name} in any round; its method, or its "
                "settings, do not, or the metrics stage must run again"
            )
        return mine

    @property
    def runs(self) -> Iterable[tuple[Data, Run]]:
        """(federation, run) of every run, federation by federation."""
        return (
            (federation, run)
            for federation in self.exhibit.federations
            for run in exhibits.runs_of(self.exhibit, federation.name)
        )
