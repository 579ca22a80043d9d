"""The common parts of all papers' declarations.

A run is a label on a federation: `Setting.labels` lists the runs of a federation, and a table of
`Variant` by label says what each means.

A paper's tables and figures are constants: kinds of `fedlib.spec.tables` or `fedlib.spec.figures`
in which fields that differ between scales are functions. `federations` is a function of all
settings that returns the shown ones: `on("accuracy")`. Any other field may be a function of the
shown settings. Labels without a run are left out, so `labels` may name more than a scale has.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from fedlib.errors import ConfigError
from fedlib.papers import _criteria
from fedlib.spec import SCALES, Data, Paper, Run
from fedlib.spec.exhibits import Exhibit

TITLES = {  # of data sets
    **{"digits": "Digits", "mnist": "MNIST", "emnist": "EMNIST", "femnist": "FEMNIST"},
    **{"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"},
}
DIGITS_NOTE = "scikit-learn's 1,797 handwritten digits; not a data set of the paper."


@dataclass(frozen=True)
class Variant:
    """The meaning of a label; papers derive their own.

    Attributes:
      title: its name in tables and figures.
      method: registry name.
      params: hyper-parameters of this variant alone.
    """

    title: str
    method: str
    params: dict = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Setting(ABC):
    """Base class of a federation and the settings of its runs; papers derive their own.

    Attributes:
      data: the federation.
      labels: of the runs; their meaning is the paper's.
      roles: names by which the paper's `exhibits` select settings.
    """

    data: Data
    labels: tuple[str, ...]
    roles: tuple[str, ...]

    def notes(self, label: str) -> tuple[str, ...]:
        """Notes of the run of a label."""
        return ()

    @abstractmethod
    def run(self, label: str) -> Run:
        """The run of a label."""

    def make_run(self, label: str, variant: Variant, params: dict, **fields: Any) -> Run:
        """The run of a variant, with hyper-parameters of its method here and fields of `Run`."""
        return Run(
            federation=self.data.name,
            label=label,
            title=variant.title,
            method=variant.method,
            params={**params, **variant.params},
            notes=self.notes(label),
            **fields,
        )


def num_training_clients(data: Data) -> int:
    """Number of clients of a partition that train, which are all but the unseen ones."""
    num = data.partition["num_clients"]
    return num - int(data.partition.get("unseen_fraction", 0.0) * num + 1e-9)


def participation(cohort: int, num_clients: int) -> dict:
    """`Run.participation` for `cohort` clients in a round; only their models are averaged."""
    # The next larger number, so that rounding down gives exactly the cohort.
    rate = 1.0 if cohort == num_clients else math.nextafter(cohort / num_clients, 1)
    return {"rate": rate, "aggregation": "renormalised"}


Settings = Sequence[Setting]
Scale = tuple[str, tuple[int, ...], tuple[Setting, ...]]  # its note, its seeds, its settings


def on(
    *roles: str, runs: Sequence[str] = (), where: Callable[[Any], Any] = bool
) -> Callable[[Settings], list[Setting]]:
    """A function that selects settings.

    Args:
      roles: of which they have one, if any are named.
      runs: labels, all of which they have.
      where: is true of them.
    """

    def is_wanted(setting: Any) -> bool:
        has_role = not roles or {*roles} & {*setting.roles}
        return bool(has_role and {*runs} <= {*setting.labels} and where(setting))

    return lambda settings: list(filter(is_wanted, settings))


def each(value: Callable[[Any], Any]) -> Callable[[Settings], dict[str, Any]]:
    """A function that gives the `value` of each setting by federation, without None."""

    def of(shown: Settings) -> dict[str, Any]:
        values = {setting.data.name: value(setting) for setting in shown}
        return {name: found for name, found in values.items() if found is not None}

    return of


def everything(shown: Settings) -> tuple[str, ...]:
    """All labels of the shown settings."""
    return tuple(dict.fromkeys(label for setting in shown for label in setting.labels))


def in_all(labels: Sequence[str]) -> Callable[[Settings], list[str]]:
    """A function that selects the labels that all shown settings have."""
    return lambda shown: [x for x in labels if all(x in setting.labels for setting in shown)]


def at_scale(
    exhibits: Mapping[str, Exhibit], settings: Settings, runs: Iterable[Run]
) -> dict[str, Exhibit]:
    """The tables or figures of a scale, without empty ones."""
    cells = [(run.federation, run.label) for run in runs]
    made = {name: _resolve(exhibit, settings, cells) for name, exhibit in exhibits.items()}
    return {name: exhibit for name, exhibit in made.items() if exhibit.labels}


def _resolve(exhibit: Exhibit, settings: Settings, cells: list[tuple[str, str]]) -> Exhibit:
    """An exhibit with its functions replaced by their values for the settings."""
    if not (shown := exhibit.federations(settings)):
        return dataclasses.replace(exhibit, labels=(), federations=())
    values = {one.name: getattr(exhibit, one.name) for one in dataclasses.fields(exhibit)}
    fields = {name: x(shown) if callable(x) else x for name, x in values.items()}
    names = [setting.data.name for setting in shown]
    there = [cell for cell in cells if cell[0] in names and cell[1] in fields["labels"]]
    federations, labels = ({cell[i] for cell in there} for i in (0, 1))
    fields["federations"] = tuple(name for name in names if name in federations)
    fields["labels"] = tuple(x for x in dict.fromkeys(fields["labels"]) if x in labels)
    return type(exhibit)(**fields)


def paper(
    name: str,
    title: str,
    citation: str,
    scales: ModuleType,
    exhibits: ModuleType,
    criteria: _criteria.Acceptance | None = None,
) -> Callable[[str], Paper]:
    """The function that declares a paper at one scale.

    Args:
      name, title, citation: of the paper.
      scales: has a function per scale, which returns the scale's note, its seeds and settings.
      exhibits: has `TABLES` and `FIGURES`, by name.
      criteria: what the rows of `criteria.csv` mean, which are the last table. None if there is no
        paper whose claims could be tested.
    """

    def declare(scale: str) -> Paper:
        """The paper at one scale, without tables and figures that would be empty.

        Raises:
          ConfigError: for an unknown scale.
        """
        if scale not in SCALES:
            raise ConfigError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
        note, seeds, settings = getattr(scales, scale)()
        runs = tuple(setting.run(label) for setting in settings for label in setting.labels)
        tables = at_scale(exhibits.TABLES, settings, runs)
        asked = criteria and _criteria.table(name, criteria, settings, runs)
        return Paper(
            name=name,
            title=title,
            citation=citation,
            scale=scale,
            scale_note=note,
            seeds=seeds,
            data=tuple(setting.data for setting in settings),
            runs=runs,
            tables=tables | ({"criteria": asked} if asked and asked.labels else {}),
            figures=at_scale(exhibits.FIGURES, settings, runs),
        )

    return declare
