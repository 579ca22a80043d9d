"""The inputs of a kind of table or figure, and how the module of that kind is found.

The kind `gains` of tables is the class `Gains` of `fedlib.spec.tables`, which has its fields, and
the module `fedlib.report.tables.gains`, whose function makes the table.
"""

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib import seals
from fedlib.errors import DataError
from fedlib.report import exhibits, frames, printed
from fedlib.report.metrics import TRAFFIC
from fedlib.spec.exhibits import declared


@dataclass(frozen=True)
class Inputs:
    """The inputs of a table or figure.

    Attributes:
      exhibit: see `fedlib.report.exhibits`.
      metrics, clients: frames, see `fedlib.report.metrics`.
      published: the paper's own numbers, see `fedlib.report.printed`; None if it has none.
      kind: the fields of its kind, a class of `fedlib.spec.tables` or `fedlib.spec.figures`.
      manifests: of the exhibit's federations, first seed, if it shows their data.
    """

    exhibit: dict
    metrics: pd.DataFrame
    clients: pd.DataFrame
    published: pd.DataFrame | None
    kind: Any
    manifests: Sequence[dict] = ()

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The metrics of the exhibit's runs and seeds.

        Raises:
          DataError: if a run has no metrics.
        """
        return exhibits.select(self.exhibit, self.metrics)

    @cached_property
    def client_rows(self) -> pd.DataFrame:
        """The same rows of `clients`."""
        return exhibits.select(self.exhibit, self.clients)

    def printed(self, metric: str = "accuracy") -> dict[tuple[str, str], float]:
        """The exhibit's own published numbers, by data set and label."""
        return printed.fractions(self.published, self.exhibit["published"], metric)

    def recorded(self, run: dict, name: str, **where: object) -> pd.DataFrame:
        """A run's records by round of the metric `name`, or of `name`_0, `name`_1, ...

        Raises:
          DataError: if no record matches `where`.
        """
        rows = exhibits.pick(self.rows, at="round", **TRAFFIC._asdict(), **where)
        mine = exhibits.of_run(rows[rows["metric"].str.match(rf"{name}(_\d|$)")], run)
        if mine.empty:
            raise DataError(
                f"{exhibits.name(run)} recorded no {name} in any round; its method, or its "
                "settings, do not, or the metrics stage must run again"
            )
        return mine

    @property
    def runs(self) -> Iterable[tuple[dict, dict]]:
        """(federation, run) of every run, federation by federation."""
        return (
            (federation, run)
            for federation in self.exhibit["federations"]
            for run in exhibits.runs_of(self.exhibit, federation["name"])
        )


def loader(stage: str, function: str, given: type[Inputs]) -> Callable[[str], Callable]:
    """The function `load(kind)` of tables or figures (`stage`).

    It returns a function of (exhibit, metrics, clients, published), optional manifests, and the
    kind's fields.

    Args:
      function: name of the function of each module, which takes a `given`.
      given: class of its argument.

    Raises:
      ConfigError: on that function's call, for an unknown kind or wrong fields.
    """

    def load(kind: str) -> Callable:
        def made(
            exhibit: dict,
            metrics: Any,
            clients: Any,
            published: Any,
            manifests: Sequence[dict] = (),
            **fields: Any,
        ) -> Any:
            own = declared(stage, kind, exhibit["title"], exhibit["caption"], (), (), fields)
            module = importlib.import_module(f"fedlib.report.{stage}s.{kind}")
            all_given = given(exhibit, metrics, clients, published, own, manifests)
            return getattr(module, function)(all_given)

        return made

    return load


def made(
    load: Callable,
    exhibit: dict,
    metrics: Path,
    clients: Path,
    published: Path | None,
    manifests: Iterable[Path] = (),
) -> Any:
    """The sheet or figure of an exhibit, from files.

    Args:
      load: of `fedlib.report.tables` or `fedlib.report.figures`.
      exhibit: see `fedlib.report.exhibits`; "metrics" is the digest of the specification of both
        frames, absent from packs of earlier versions.

    Raises:
      DataError: if a file is missing, damaged or of another specification, or lacks numbers of the
        exhibit.
    """
    return load(exhibit["kind"])(
        exhibit,
        frames.read_of(metrics, exhibit.get("metrics"), ("metric", "value")),
        frames.read_of(clients, exhibit.get("metrics"), ("client",)),
        printed.read(published) if published else None,
        [seals.read_json(path, has=("class_histogram", "sizes")) for path in manifests],
        **exhibit["params"],
    )
