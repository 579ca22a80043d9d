"""What the declarations of all papers have in common."""

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Protocol

from fedlib.errors import ConfigError
from fedlib.spec import SCALES, Data, Figure, Paper, Run, Table


class Setting(Protocol):
    """A federation, and what is run on it."""

    data: Data

    def runs(self) -> Iterable[Run]:
        """All runs."""


Settings = tuple[Setting, ...]
Exhibits = Callable[[Settings, tuple[Run, ...]], tuple[dict[str, Table], dict[str, Figure]]]


def declare(
    scale: str,
    scales: ModuleType,
    exhibits: Exhibits,
    *,
    variants: Callable[[Setting], Iterable[Setting]] = lambda setting: (),
    **about: str,
) -> Paper:
    """The paper at one scale, without the tables and figures that have nothing to show there.

    Args:
      scale: one of `SCALES`.
      scales: has a function of that name, which makes the scale's note, its seeds and settings.
        Without `demo_all`, scale demo-all is what scale demo is.
      exhibits: makes tables and figures of settings and their runs.
      variants: further settings that go with one; they come last.
      about: name, title and citation of the paper.

    Raises:
      ConfigError: for an unknown scale.
    """
    if scale not in SCALES:
        raise ConfigError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    made = getattr(scales, scale.replace("-", "_"), scales.demo)
    note, seeds, settings = made()
    settings += tuple(other for setting in settings for other in variants(setting))
    runs = tuple(run for setting in settings for run in setting.runs())
    tables, figures = exhibits(settings, runs)
    return Paper(
        **about,
        scale=scale,
        scale_note=f"{scale}:{note.partition(':')[2]}",  # not "demo:" at scale demo-all
        seeds=seeds,
        data=tuple(setting.data for setting in settings),
        runs=runs,
        tables=_shown(tables),
        figures=_shown(figures),
    )


def _shown(exhibits: dict) -> dict:
    """Those with runs on federations."""
    return {name: x for name, x in exhibits.items() if x.labels and x.federations}
