"""Declarations of papers: federations, runs, tables and figures. Plain data, no behaviour.

Every declaration becomes canonical JSON, the input of a job; when it changes, the job runs again.
So a field that changes a result belongs in `spec()` or, for runs, in `fedlib.run_spec.Recipe`, and
a field that is only shown (a title, a note) must stay out of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

# The modules of kinds are registered, by which `from_kind` finds each kind; names are for others.
from fedlib.spec import contrasts, criteria, experts, figures, luck, server, tables, worlds
from fedlib.spec.exhibits import PRIMARY, Exhibit, ExhibitSpec, View
from fedlib.spec.trainings import Data, Run, RunName

SCALES = ("demo", "reduced", "full")


@dataclass(frozen=True)
class Paper:
    """The reproduction of a paper at one scale.

    Attributes:
      name: path-safe identifier; title, citation: of the paper.
      scale: one of `SCALES`; scale_note: one sentence that describes it.
      seeds: training seeds of all runs without seeds of their own.
      data, runs: see `Data` and `Run`.
      tables, figures: by path-safe name.
    """

    name: str
    title: str
    citation: str
    scale: str
    scale_note: str
    seeds: tuple[int, ...]
    data: tuple[Data, ...]
    runs: tuple[Run, ...]
    tables: dict[str, Exhibit]
    figures: dict[str, Exhibit]

    def __post_init__(self):
        for *_, exhibit in self.exhibits():
            exhibit.check()

    def runs_by_name(self) -> dict[RunName, Run]:
        """The runs by name."""
        return {RunName(self.name, run.federation, run.label): run for run in self.runs}

    def exhibits(self) -> Iterator[tuple[str, str, Exhibit]]:
        """(stage, name, exhibit) of every table, then of every figure."""
        for stage, named in (("table", self.tables), ("figure", self.figures)):
            yield from ((stage, name, exhibit) for name, exhibit in named.items())

    def exhibits_of(self, federation: str, label: str) -> list[Exhibit]:
        """The tables and figures that show a run."""
        return [exhibit for *_, exhibit in self.exhibits() if exhibit.shows(federation, label)]

    def views_of(self, federation: str, label: str) -> set[View]:
        """Views of a run that tables and figures show besides the primary one."""
        about = self.exhibits_of(federation, label)
        return {view for exhibit in about for view in exhibit.views(federation, label)} - {PRIMARY}

    def required_groups(self, federation: str, label: str) -> list[str]:
        """["server"] if a run's method must be able to predict the server's test examples, else [].

        It must if a table or figure with the run shows them: there a method that cannot predict
        them has no number at all. Seen clients always have a predictor; unseen ones need none.
        """
        about = self.exhibits_of(federation, label)
        shown = View("server") in self.views_of(federation, label)
        return ["server"] if shown or any(exhibit.of_server for exhibit in about) else []

    def seeds_of(self, run: Run) -> tuple[int, ...]:
        """Training seeds of a run."""
        return run.seeds or self.seeds
