"""The runs that declarations train, and checks of declarations."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fedlib.data import downloads
from fedlib.errors import ConfigError, quote
from fedlib.fields import as_form
from fedlib.files import canonical_json
from fedlib.run_spec import Tuning, check_types, is_file
from fedlib.spec import Data, Paper, Run
from fedlib.spec.exhibits import Exhibit
from fedlib.workflow import config, own_methods
from fedlib.workflow.config import check_choice, check_choices, check_count, check_unique
from fedlib.workflow.layout import WILDCARDS
from fedlib.workflow.provenance import registry


class Training(NamedTuple):
    """One training run with its seed."""

    paper: str
    federation: str
    label: str
    seed: int


def trainings_of(paper: Paper) -> list[Training]:
    """Every training run of a paper."""
    runs = paper.runs_by_name().items()
    return [Training(*name, seed) for name, run in runs for seed in paper.seeds_of(run)]


def check_paper(paper: Paper, name: str, scale: str) -> None:
    """Raise ConfigError if a declaration contradicts itself or names something unknown."""
    where = f"papers.{name}"
    if not isinstance(paper, Paper) or (paper.name, paper.scale) != (name, scale):
        got = f"{paper.name!r} at {paper.scale!r}" if isinstance(paper, Paper) else quote(paper)
        raise ConfigError(f"{where}: declare({scale!r}) returned the paper {got}")
    check_types(f"{where}.", paper)
    datasets, kinds = registry("data.sources"), registry("data.partitions")
    for data in paper.data:
        at = f"{where}.data[{data.name}]"
        check_types(f"{at}.", data)
        _check_json(at, data)
        check_choice(f"{at}.dataset", data.dataset, datasets)
        check_choice(f"{at}.partition.kind", data.partition.get("kind"), kinds)
    known = {name: registry(name) for name in ("methods", "models")}
    known["weights"] = downloads.weights()
    for run in paper.runs:
        at = f"{where}.runs[{run.federation}/{run.label}]"
        check_types(f"{at}.", run)
        _check_json(at, run)
        check_unique(f"{at}.seeds", run.seeds)
        _check_run(at, run, paper, known)
    _check_names("papers", "paper", [name])
    _check_names(f"{where}.data", "federation", [data.name for data in paper.data])
    _check_names(f"{where}.runs", "label", {run.label for run in paper.runs})
    _check_names(f"{where}.tables", "table", paper.tables)
    _check_names(f"{where}.figures", "figure", paper.figures)
    check_unique(f"{where}.seeds", paper.seeds)
    check_unique(f"{where}.runs", [f"{run.federation}/{run.label}" for run in paper.runs])
    for stage, key, exhibit in paper.exhibits():
        _check_exhibit(f"{where}.{stage}s[{key}]", stage, exhibit, paper)
    check_seeds(paper)


def check_seeds(paper: Paper) -> None:
    """Raise ConfigError if a run has the seed of its tuning, or an exhibit no seed to show."""
    where = f"papers.{paper.name}"
    for run in paper.runs:
        seeds = paper.seeds_of(run)
        config.check_seeds(f"{where}.seeds", seeds)
        check_tuning(f"{where}.runs[{run.federation}/{run.label}]", run, seeds)
    for stage, key, exhibit in paper.exhibits():
        shown = [run for run in paper.runs if exhibit.shows(run.federation, run.label)]
        if shown and not common_seeds(paper, shown):
            at = f"{where}.{stage}s[{key}].labels"
            raise ConfigError(f"{at}: there is no seed that all of its runs have")


def _check_json(at: str, declared: Run | Data) -> None:
    """Raise ConfigError for values that JSON cannot express, such as infinity."""
    for name, value in vars(declared).items():
        try:
            canonical_json(value)
        except (TypeError, ValueError) as error:
            must = f"{at}.{name} must be JSON, got {quote(value)}"
            raise ConfigError(f"{must}: {error}") from None


def _check_run(at: str, run: Run, paper: Paper, known: Mapping[str, tuple[str, ...]]) -> None:
    """Raise ConfigError for a run with a method, model or weights that are not `known`."""
    check_choice(f"{at}.federation", run.federation, [data.name for data in paper.data])
    check_count(f"{at}.rounds", run.rounds)
    if is_file(run.method):
        own_methods.title_of(run.method)
    else:
        check_choice(f"{at}.method", run.method, known["methods"])
    modules = {f"{at}.modules[{name}]": module for name, module in run.architectures.items()}
    for place, one in {at: run.architecture, **modules}.items():
        check_choice(f"{place}.model", one.model, known["models"])
        if one.weights is not None:
            check_choice(f"{place}.weights", one.weights, known["weights"])


def check_tuning(at: str, run: Run, seeds: Iterable[int]) -> None:
    """Raise ConfigError for an invalid tuning of a run.

    Args:
      seeds: of the run; the tuning must have another seed.
    """
    if run.tuning is None:
        return
    at, seeds = f"{at}.tuning", [*seeds]
    how = as_form(Tuning, run.tuning, at)
    check_types(f"{at}.", how)
    check_count(f"{at}.trials", how.trials)
    tuning = [how.seed + one for one in seeds] if how.per_seed else [how.seed]
    config.check_seeds(f"{at}.seed", tuning)
    if {*tuning} & {*seeds}:
        raise ConfigError(
            f"{at}.seed must be none of the seeds of the run, {', '.join(map(str, seeds))}, got "
            f"{', '.join(map(str, tuning))}: what tunes a run is not reported"
        )
    if len(how.rates) != 2 or not 0 < how.rates[0] < how.rates[1]:
        raise ConfigError(f"{at}.rates must be two rates above 0, the lower first, got {how.rates}")
    if "lr" not in run.local:
        raise ConfigError(f"{at}: the local solver has no rate lr to begin with")


def _check_exhibit(where: str, stage: str, exhibit: Exhibit, paper: Paper) -> None:
    check_choice(f"{where}.kind", exhibit.drawn_by, registry(f"report.{stage}s"))
    check_unique(f"{where}.labels", exhibit.labels)
    check_unique(f"{where}.federations", exhibit.federations)
    federations = [run.federation for run in paper.runs if run.label in exhibit.labels]
    check_choices(f"{where}.federations", exhibit.federations, federations, "its labels run on")
    labels = [run.label for run in paper.runs if run.federation in exhibit.federations]
    check_choices(f"{where}.labels", exhibit.labels, labels, "its federations have runs")
    for name in exhibit.by_federation:
        given = getattr(exhibit, name) or ()
        check_choices(f"{where}.{name}", given, exhibit.federations, "it shows")
    check_choices(f"{where}.labels", exhibit.own_labels(), exhibit.labels, "it shows")


def common_seeds(paper: Paper, runs: Iterable[Run]) -> list[int]:
    """The seeds that all of these runs have, in the order of the first run."""
    seeds = [paper.seeds_of(run) for run in runs]
    return [seed for seed in seeds[0] if all(seed in others for others in seeds)]


def _check_names(key: str, wildcard: str, names: Iterable[str]) -> None:
    """Raise ConfigError for a name that cannot be a part of a path."""
    for name in names:
        if not re.fullmatch(WILDCARDS[wildcard], name) or name.startswith("."):
            raise ConfigError(f"{key}: the name {name!r} must match {WILDCARDS[wildcard]}")
    check_unique(key, names)
