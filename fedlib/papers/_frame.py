"""What the declarations of all papers have in common.

A paper's tables and figures are constants: each is a kind of `fedlib.spec.tables` or
`fedlib.spec.figures` in which what differs from scale to scale is a function. `federations` is one
of all settings, and gives those that are shown: `on("accuracy")`. Every other field may be one of
the settings that are shown. Of `labels`, those without a run on them are left out, so they may name
more than a scale has.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from fedlib.errors import ConfigError
from fedlib.spec import SCALES, Data, Paper, Run
from fedlib.spec.exhibits import Exhibit


@dataclass(frozen=True, kw_only=True)
class Setting(ABC):
    """A federation, and how methods are run on it; papers derive theirs.

    Attributes:
      data: the federation.
      labels: what is run; a paper says what they mean.
      roles: which tables and figures it is for; the paper's `exhibits` name them.
    """

    data: Data
    labels: tuple[str, ...]
    roles: tuple[str, ...]

    @abstractmethod
    def runs(self) -> Iterable[Run]:
        """All runs."""

    def variants(self) -> Iterable["Setting"]:
        """Further settings that go with this one."""
        return ()


def participation(cohort: int, num_clients: int) -> dict:
    """So many clients in a round, as `Run` has it; only their models are averaged."""
    # A share that is cut to the cohort wherever it is rounded.
    rate = 1.0 if cohort == num_clients else math.nextafter(cohort / num_clients, 1)
    return {"rate": rate, "aggregation": "renormalised"}


Settings = Sequence[Setting]


def on(*roles: str, where: Callable[[Any], Any] = bool) -> Callable[[Settings], list[Setting]]:
    """Of all settings those with any of the roles, of which `where` is true."""
    return lambda settings: [s for s in settings if {*roles} & {*s.roles} and where(s)]


def each(value: Callable[[Any], Any]) -> Callable[[Settings], dict[str, Any]]:
    """By federation what `value` makes of its setting, but for None."""

    def of(shown: Settings) -> dict[str, Any]:
        values = {setting.data.name: value(setting) for setting in shown}
        return {name: found for name, found in values.items() if found is not None}

    return of


def everything(shown: Settings) -> tuple[str, ...]:
    """All labels of the settings that are shown."""
    return tuple(dict.fromkeys(label for setting in shown for label in setting.labels))


def at_scale(
    exhibits: Mapping[str, Exhibit], settings: Settings, runs: Iterable[Run]
) -> dict[str, Exhibit]:
    """The tables or figures of a scale, without those that have nothing to show there."""
    cells = [(run.federation, run.label) for run in runs]
    made = {name: _made(exhibit, settings, cells) for name, exhibit in exhibits.items()}
    return {name: exhibit for name, exhibit in made.items() if exhibit.labels}


def _made(exhibit: Exhibit, settings: Settings, cells: list[tuple[str, str]]) -> Exhibit:
    """An exhibit with what its functions make of the settings."""
    shown = exhibit.federations(settings)
    if not shown:
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
    criteria: Callable[[Settings, tuple[Run, ...]], Exhibit],
) -> Callable[[str], Paper]:
    """The function that declares a paper at one scale.

    Args:
      name, title, citation: of the paper.
      scales: has a function per scale, which makes the scale's note, its seeds and settings.
        Without `demo_all`, scale demo-all is what scale demo is.
      exhibits: has `TABLES` and `FIGURES`, by name.
      criteria: makes the table of criteria of settings and their runs; it comes last.
    """

    def declare(scale: str) -> Paper:
        """The paper at one scale, without the tables and figures that have nothing to show there.

        Raises:
          ConfigError: for an unknown scale.
        """
        if scale not in SCALES:
            raise ConfigError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
        note, seeds, settings = getattr(scales, scale.replace("-", "_"), scales.demo)()
        settings += tuple(other for setting in settings for other in setting.variants())
        runs = tuple(run for setting in settings for run in setting.runs())
        asked = criteria(settings, runs)
        tables = at_scale(exhibits.TABLES, settings, runs)
        return Paper(
            name=name,
            title=title,
            citation=citation,
            scale=scale,
            scale_note=f"{scale}:{note.partition(':')[2]}",  # not "demo:" at scale demo-all
            seeds=seeds,
            data=tuple(setting.data for setting in settings),
            runs=runs,
            tables=tables | ({"criteria": asked} if asked.labels else {}),
            figures=at_scale(exhibits.FIGURES, settings, runs),
        )

    return declare
