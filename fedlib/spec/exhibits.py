"""The base class of all kinds of tables and figures.

A kind is a class, such as those of `fedlib.spec.tables` and `fedlib.spec.figures`. A paper declares
its fields. Its methods tell a plan which views must be evaluated, which part of it a selection of
runs leaves, and whether it has room for a user's method. The module `drawn_by` in
`fedlib.report.tables` or `fedlib.report.figures` draws it.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from fedlib.errors import ConfigError
from fedlib.fields import as_form
from fedlib.run_spec import check_types
from fedlib.spec.trainings import Data, Run

KINDS: dict[str, dict[str, type["Exhibit"]]] = {"table": {}, "figure": {}}
# As in `fedlib.run.predictions`, which is not imported here: plans need no NumPy.
OF_PREDICTIONS = ("macro_f1", "auc", "brier", "ece", "ece_by_chance")
OF_SERVER = ("accuracy", "loss", *OF_PREDICTIONS)
OF_CLIENTS = ("accuracy", "bottom10", "accuracy_client_mean")
GROUPS = ("seen", "unseen", "server")
SPLITS = ("test", "val", "train")
OWNERS = ("run", "federation")  # of a swept parameter


class View(NamedTuple):
    """A part of a run's evaluation, see `fedlib.results.View`."""

    group: str = "seen"
    protocol: str = "default"
    split: str = "test"


PRIMARY = View()
Pair = tuple[str, str]  # (federation, label) of a run


class Protocol(NamedTuple):
    """A way to predict, by its name in evaluations; see `fedlib.report.comparisons`."""

    name: str
    key: str = ""
    title: str = ""


@dataclass(frozen=True)
class Exhibit:
    """A table or figure.

    Attributes:
      title: one line; caption: the content, and how it differs from the paper's.
      labels: of its runs, in row order; federations: their names, in column order.
      published: value of the column `exhibit` in `papers/<paper>/published.csv` for its numbers;
        None if the paper prints none.
      stage: "table" or "figure"; kind: of classes that are no `base` of kinds; drawn_by: the module
        that does it, by default the kind's.
      room_for_others: whether it can show any method, and so a user's.
      of_server: whether it shows results on the server's test examples, which its methods must
        then be able to predict.
      compares: whether it compares runs; a single run is then shown only beside a published number.
      needs_others: whether it shows nothing of a single run, as it is about a lead or a course.
      by_federation: names of the fields that are None or mappings by federation.
      choices: allowed values by field; forms: for fields that are lists of mappings, the named
        tuple of each mapping.
    """

    title: str
    caption: str
    labels: tuple[str, ...]
    federations: tuple[str, ...]
    published: str | None = field(default=None, kw_only=True)

    stage: ClassVar[str]
    kind: ClassVar[str]
    drawn_by: ClassVar[str] = ""
    room_for_others: ClassVar[bool] = False
    of_server: ClassVar[bool] = False
    by_federation: ClassVar[tuple[str, ...]] = ()
    compares: ClassVar[bool] = False
    needs_others: ClassVar[bool] = False
    choices: ClassVar[Mapping[str, Collection[str]]] = {}
    forms: ClassVar[Mapping[str, type]] = {"protocols": Protocol}

    def check(self) -> None:
        """Check the values of the fields; a `Paper` checks all its exhibits.

        Raises:
          ConfigError: for a value that cannot be shown.
        """
        for name, known in self.choices.items():
            one_of(known, getattr(self, name), f"{self.stage} {self.title!r}: {name}")
        for name in self.forms:
            formed = self.entries(name)
            if len({*map(str, formed)}) < len(formed):
                said = f"{name} must be different ones, got {getattr(self, name)}"
                raise ConfigError(f"{self.stage} {self.title!r}: {said}")

    def entries(self, name: str) -> list[Any]:
        """The mappings of the field `name`, each as the named tuple of its form.

        Raises:
          ConfigError: for a mapping with missing or unknown keys.
        """
        where = f"{self.stage} {self.title!r}: each of {name}"
        return [as_form(self.forms[name], one, where) for one in getattr(self, name, None) or ()]

    def __init_subclass__(cls, base: bool = False, **rest: Any):
        super().__init_subclass__(**rest)
        if not base:
            cls.kind = re.sub(r"(?<!^)([A-Z])", r"_\1", cls.__name__).lower()
            cls.drawn_by = cls.drawn_by or cls.kind
            KINDS[cls.stage][cls.kind] = cls

    @classmethod
    def module_name(cls) -> str:
        """The module that draws this kind, a root of the code of its tables or figures."""
        return f"fedlib.report.{cls.stage}s.{cls.drawn_by}"

    @property
    def params(self) -> dict[str, Any]:
        """The kind's own fields by name, those at their default left out."""
        own = ((one, getattr(self, one.name)) for one in dataclasses.fields(self)[COMMON:])
        return {one.name: value for one, value in own if value != one.default}

    def own_labels(self) -> Iterable[str]:
        """The labels in the kind's own fields, all of runs that it shows."""
        return ()

    def shows(self, federation: str, label: str) -> bool:
        """Whether it shows the run `label` of the federation."""
        return federation in self.federations and label in self.labels

    def views(self, federation: str, label: str) -> Iterable[View]:
        """Views that it shows of one of its runs, besides the primary one: here its protocols."""
        return (View(protocol=one["name"]) for one in getattr(self, "protocols", None) or ())

    def metrics(self) -> Iterable[str]:
        """Metrics that it shows, itself or in one of its forms."""
        formed = (one for name in self.forms for one in self.entries(name))
        return [one.metric for one in (self, *formed) if hasattr(one, "metric")]

    @property
    def of_predictions(self) -> set[str]:
        """Metrics of single predictions that it shows."""
        return {*OF_PREDICTIONS} & {*self.metrics()}

    def narrow(self, runs: Sequence[Run]) -> Self | None:
        """The exhibit with those of `runs` that it shows; None if nothing is left to show."""
        there = {(run.federation, run.label) for run in runs}
        shown = [(f, label) for f in self.federations for label in self.labels]
        if not (shown := self.keep_comparable([pair for pair in shown if pair in there])):
            return None
        federations, labels = ({pair[i] for pair in shown} for i in (0, 1))
        left = [run for run in runs if (run.federation, run.label) in shown]
        return dataclasses.replace(
            self,
            labels=tuple(label for label in self.labels if label in labels),
            federations=tuple(f for f in self.federations if f in federations),
            **self.changes({*self.federations} - federations, left),
        )

    def keep_comparable(self, pairs: list[Pair]) -> list[Pair]:
        """Those of `pairs` that can still be compared."""
        return pairs

    def changes(self, gone: Collection[str], runs: Sequence[Run]) -> dict[str, Any]:
        """The fields that change when only `runs` are shown, without the federations `gone`."""
        return {name: without(gone, getattr(self, name)) for name in self.by_federation}

    def beside(self, label: str, method: str, title: str, like: str) -> Self:
        """The exhibit with one more run, in its last row, if it has room and shows `like`."""
        if not self.room_for_others or like not in self.labels:
            return self
        return dataclasses.replace(self, labels=(*self.labels, label))


@dataclass(frozen=True, kw_only=True)
class ExhibitSpec:
    """The specification of the job that makes a table or figure.

    Attributes:
      paper: of the paper; name: of the exhibit in it.
      kind, title, caption, params, published: as in `Exhibit`.
      scale, scale_note, folder_note: of the runs, for readers.
      seeds: that all of the runs have.
      federations: in column order; runs: in row order.
      metrics: digest of the specification of the metrics; packs of earlier versions have none.
    """

    paper: str
    name: str
    kind: str
    title: str
    caption: str
    params: dict
    scale: str
    scale_note: str
    folder_note: str
    seeds: Sequence[int]
    federations: Sequence[Data]
    runs: Sequence[Run]
    published: str | None
    metrics: str | None = None

    @classmethod
    def from_json(cls, entries: Mapping) -> Self:
        """The specification in a JSON object.

        Raises:
          ConfigError: for an entry of a wrong type.
        """
        federations = [Data(**one) for one in entries["federations"]]
        known = {field.name for field in dataclasses.fields(Run)}  # packs may have earlier ones
        runs = [Run(**{k: x for k, x in one.items() if k in known}) for one in entries["runs"]]
        spec = cls(**{**entries, "federations": federations, "runs": runs})
        check_types("", spec)
        return spec

    def to_json(self) -> dict:
        """The JSON object of `from_json`."""
        lists = {"federations": self.federations, "runs": self.runs}
        return vars(self) | {name: [x.describe() for x in found] for name, found in lists.items()}


COMMON = len(dataclasses.fields(Exhibit))  # fields that all kinds have


def from_kind(stage: str, kind: str, params: Mapping, title: str, *common: Any) -> Exhibit:
    """A table or figure (`stage`) by the name of its kind.

    Args:
      params: the kind's own fields.
      common: caption, labels and federations.

    Raises:
      ConfigError: for an unknown kind, or unknown or missing fields.
    """
    one_of(sorted(KINDS[stage]), kind, f"{stage} {title!r}: kind")
    try:
        exhibit = KINDS[stage][kind](title, *common, **params)
    except TypeError as error:  # Python names the fields
        raise ConfigError(f"{stage} {title!r}: {error}") from None
    exhibit.check()
    return exhibit


def one_of(known: Collection[str], value: object, where: str) -> None:
    """Raise ConfigError, whose message starts with `where`, unless `value` is in `known`."""
    if value not in known:
        raise ConfigError(f"{where} must be {' or '.join(known)}, got {value!r}")


def without(gone: Collection[str], by_federation: Mapping | None) -> dict | None:
    """A mapping by federation without the federations in `gone`."""
    if by_federation is None:
        return None
    return {name: value for name, value in by_federation.items() if name not in gone}


def against(of: str, groups: Iterable[Collection[str]], pairs: list[Pair]) -> list[Pair]:
    """The pairs of federations that have the run `of` and another one, from each of `groups`."""
    labels: dict[str, set[str]] = {}
    for federation, label in pairs:
        labels.setdefault(federation, set()).add(label)
    kept = {
        name
        for name, there in labels.items()
        if of in there and all({*group} & (there - {of}) for group in groups or [there])
    }
    return [pair for pair in pairs if pair[0] in kept]
