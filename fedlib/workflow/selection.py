"""A configuration's selection from the papers: seeds, rounds, federations, labels."""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fedlib import papers
from fedlib.errors import ConfigError
from fedlib.spec import Data, Paper, Run, RunName
from fedlib.spec.exhibits import Exhibit
from fedlib.workflow import declarations, overrides, own_methods
from fedlib.workflow.config import DEFAULTS, check, check_choices, check_unique, normalise
from fedlib.workflow.declarations import Training, trainings_of
from fedlib.workflow.layout import PATHS


class Selection:
    """The papers of a configuration, with its seeds, rounds and selection.

    Attributes:
      config: the configuration with every key present (see config.yaml).
      scale: one of `fedlib.spec.SCALES`.
      folder: name of the folder below results/ and figures/: the scale, with the tag if any.
      folder_note: difference of this folder from the scale's own, "" if there is none.
      declared: papers by name, as declared.
      whole: these papers with the methods and values of the configuration.
      papers: these papers with the configuration's seeds, rounds and selection, and what else of
        them is finished.
      finished: the trainings of `papers` that are not selected.
      runs: of `papers`, by paper, federation and label.
      left_out: runs that cannot be made, and the reasons; see `fedlib.workflow.preflight`.
    """

    def __init__(
        self,
        config: Mapping,
        finished: Collection[Training] = (),
        unfit: Mapping[RunName, str] | None = None,
    ):
        """Check `config` and the declarations it selects.

        Args:
          finished: other trainings whose results may be shown, see `select`.
          unfit: runs to leave out, and why.

        Raises:
          ConfigError: with the key, its value and the choices.
        """
        self.config = DEFAULTS | normalise(config)
        check(self.config)
        self.scale: str = self.config["scale"]
        self.folder = "-".join(filter(None, [self.scale, self.config["tag"]]))
        names = self.config["papers"] or papers.names()
        self.declared = {name: papers.declare(name, self.scale) for name in names}
        found = own_methods.add_runs(self.declared, self.config["methods"] or ())
        self.whole: dict[str, Paper] = overrides.apply(found, self.config["set"] or ())
        for name, paper in self.whole.items():
            declarations.check_paper(paper, name, self.scale)
        check_selection(self.config, self.whole.values())
        self.left_out = unfit or {}
        wanted = {
            name: select(self._able(paper), self.config, finished)
            for name, paper in self.whole.items()
        }
        for paper in wanted.values():
            declarations.check_seeds(paper)  # those of the configuration
        # Without `papers`, the papers are those with runs that the other filters select.
        self.papers = {name: paper for name, paper in wanted.items() if paper.runs}
        if not unfit:  # one that sets what makes all runs unfit would name nothing, without them
            overrides.check_used(self.papers, self.config["set"] or ())
        self.folder_note = folder_note(self.config)
        self._data = {(name, x.name): x for name, paper in self.papers.items() for x in paper.data}
        self.runs = {k: x for one in self.papers.values() for k, x in one.runs_by_name().items()}
        self.finished = {*finished}.intersection(self.trainings())

    def _able(self, paper: Paper) -> Paper:
        """A paper without the runs that are left out."""
        runs = [run for name, run in paper.runs_by_name().items() if name not in self.left_out]
        return dataclasses.replace(paper, runs=tuple(runs))

    def trainings(self, paper: str | None = None) -> list[Training]:
        """Every training run of `paper`, or of all papers."""
        names = [paper] if paper else self.papers
        return [training for name in names for training in trainings_of(self.paper(name))]

    def turns(self) -> list[str]:
        """The papers in the order of running: the fewest rounds first."""
        rounds = {
            name: sum(self.run(*x[:3]).rounds for x in self.trainings(name)) for name in self.papers
        }
        return sorted(rounds, key=rounds.get)

    def replicate(self, paper: str, federation: str, seed: object = None, **job: Any) -> str:
        """The wildcard `replicate` of a job's partition, from its other wildcards.

        It is "" if all seeds share a partition. A run's job without a seed is its tuning, which has
        a seed of its own.
        """
        if not self.data(paper, federation).per_seed:
            return ""
        if seed is None and "label" in job and self.run(paper, federation, job["label"]).tuning:
            seed = self.tuning_seed(paper, federation, job["label"], job.get("for_seed", ""))
        return job.get("replicate") or f"/seed{seed}"

    def for_seed(self, paper: str, federation: str, label: str, seed: object = None) -> str:
        """The wildcard `for_seed` of the tuning of a run with a seed; "" if all seeds share one."""
        tuning = self.run(paper, federation, label).tuning
        return f"/seed{seed}" if tuning and tuning.get("per_seed") else ""

    def tuning_seed(self, paper: str, federation: str, label: str, for_seed: str = "") -> int:
        """The seed of the split and the trials of a tuning."""
        tuning = self.run(paper, federation, label).tuning
        return tuning.get("seed", 0) + int(for_seed.removeprefix("/seed") or 0)

    def tunings_of(self, paper: str, federation: str, label: str, seed: object) -> list[dict]:
        """Wildcards of the tuning of a run with a seed; empty if it is not tuned."""
        name = RunName(paper, federation, label)
        if not self.run(*name).tuning:
            return []
        for_seed = self.for_seed(*name, seed)
        return [name._asdict() | ({"for_seed": for_seed} if for_seed else {})]

    def run(self, paper: str, federation: str, label: str) -> Run:
        """A run for training, with the configuration's limit of rounds."""
        return _find("run", self.runs, (paper, federation, label), "this configuration has")

    def is_kept(
        self, paper: str, federation: str, label: str, seed: int | None = None, for_seed: str = ""
    ) -> bool:
        """Whether a run, or its training with a seed, is shown and not selected."""
        if for_seed:
            seed = int(for_seed.removeprefix("/seed"))
        seeds = self.paper(paper).seeds_of(self.run(paper, federation, label))
        mine = seeds if seed is None else [seed]
        return self.finished.issuperset(Training(paper, federation, label, x) for x in mine)

    def data(self, paper: str, federation: str) -> Data:
        """A declared federation."""
        return _find("federation", self._data, (paper, federation), "this configuration has")

    def exhibit(self, stage: str, paper: str, name: str) -> Exhibit:
        """The table or figure (`stage`) called `name`."""
        declared = getattr(self.paper(paper), stage + "s")
        return _find(stage, declared, name, f"{paper} at scale {self.scale} has")

    def path(self, file: str, **wildcards: object) -> str:
        """Path of a file of `PATHS`; wildcards without a value stay, such as "{label}"."""
        given = {"raw": self.config["raw"], "folder": self.folder, **wildcards}
        if "{replicate}" in PATHS[file] and "replicate" not in given and "federation" in given:
            given["replicate"] = self.replicate(**wildcards)
        if "{for_seed}" in PATHS[file] and "for_seed" not in given and "label" in given:
            given["for_seed"] = self.for_seed(**wildcards)
        return re.sub(r"\{(\w+)\}", lambda m: str(given.get(m[1], m[0])), PATHS[file])

    def paper(self, name: str) -> Paper:
        """The selected part of the paper of that name."""
        return _find("paper", self.papers, name, "this configuration has")


def check_selection(config: Mapping, declared: Iterable[Paper]) -> None:
    """Raise ConfigError if a filter has a name of no selected paper, or leaves nothing."""
    declared = list(declared)
    runs = [run for paper in declared for run in paper.runs]
    where = f"{' and '.join(paper.name for paper in declared)} at scale {config['scale']}"
    for key, attribute in (("federations", "federation"), ("labels", "label")):
        choices = sorted({getattr(run, attribute) for run in runs})
        check_choices(key, config[key] or (), choices, where)
    known = [str(name) for paper in declared for name in paper.runs_by_name()]
    check_choices("runs", config["runs"] or (), known, where)
    whole = {**config, "rounds": None}
    longest = max((run.rounds for one in declared for run in select(one, whole).runs), default=0)
    if longest and (config["rounds"] or 0) > longest:
        raise ConfigError(
            f"rounds: {config['rounds']} limits nothing, as no selected run has more than "
            f"{longest}; to have more, set=[LABEL.rounds={config['rounds']}]"
        )
    named = {data.dataset for paper in declared for data in paper.data if "source" in data.params}
    check_unique("sources", [choice.partition(":")[0] for choice in config["sources"] or ()])
    for choice in config["sources"] or ():
        dataset, separator, source = choice.partition(":")
        if not (separator and source):
            raise ConfigError(f"sources: {choice!r} is not DATASET:SOURCE, such as femnist:leaf")
        check_choices("sources", [dataset], sorted(named), f"with several sources {where}")
    empty = [paper.name for paper in declared if not select(paper, config).runs]
    every_paper_counts = config["papers"] and not config["runs"]
    if empty and (every_paper_counts or len(empty) == len(declared)):
        filters = " and ".join(x for x in ("federations", "labels", "runs") if config[x])
        whose = f"papers: {empty[0]} has no" if config["papers"] else f"{filters}: no paper has a"
        raise ConfigError(f"{whose} run left that all filters select")


def select(paper: Paper, config: Mapping, finished: Collection[Training] = ()) -> Paper:
    """The paper with the configuration's seeds, rounds and selection.

    Args:
      finished: further trainings. Of a run that is not selected they count if they have all seeds
        of the selection, so that tables show all seeds of what is selected.
    """
    chosen = {
        name
        for name, run in paper.runs_by_name().items()
        if (config["federations"] is None or run.federation in config["federations"])
        and (config["labels"] is None or run.label in config["labels"] or own_methods.is_own(run))
        and (config["runs"] is None or str(name) in config["runs"])
    }
    done: dict[tuple, set[int]] = {}
    for *name, seed in finished:
        done.setdefault(tuple(name), set()).add(seed)
    runs = []
    for name, run in paper.runs_by_name().items() if chosen else ():
        seeds = tuple(config["seeds"] or paper.seeds_of(run))
        more = done.get(name, set())
        if name in chosen or more.issuperset(seeds):
            rounds = min(run.rounds, config["rounds"] or run.rounds)
            seeds = _order_seeds(more.union(seeds), paper.seeds_of(run)) if more else seeds
            own = run.seeds if seeds == paper.seeds_of(run) else seeds
            runs.append(dataclasses.replace(run, rounds=rounds, seeds=own))
    used = {run.federation for run in runs}
    data = tuple(_from_source(x, config["sources"]) for x in paper.data if x.name in used)
    tables, figures = (_narrow(exhibits, runs) for exhibits in (paper.tables, paper.figures))
    return dataclasses.replace(paper, data=data, runs=tuple(runs), tables=tables, figures=figures)


def _order_seeds(seeds: Collection[int], declared: tuple[int, ...]) -> tuple[int, ...]:
    """Seeds in the order of declaration, and then the others."""
    return (*(x for x in declared if x in seeds), *sorted({*seeds}.difference(declared)))


def _from_source(data: Data, sources: list[str] | None) -> Data:
    """The federation from the raw files that the configuration prefers, with a note."""
    for dataset, _, source in (choice.partition(":") for choice in sources or ()):
        declared = data.params.get("source")
        if dataset == data.dataset and source != declared:
            note = f"{data.title}: from the raw files of source {source} instead of {declared}."
            params = {**data.params, "source": source}
            return dataclasses.replace(data, params=params, notes=(*data.notes, note))
    return data


def _narrow(exhibits: Mapping[str, Exhibit], runs: Sequence[Run]) -> dict[str, Exhibit]:
    """The exhibits of these runs, without exhibits that have nothing left to show."""
    narrowed = {name: exhibit.narrow(runs) for name, exhibit in exhibits.items()}
    return {name: exhibit for name, exhibit in narrowed.items() if exhibit is not None}


def folder_note(config: Mapping) -> str:
    """The difference of a folder of results from the scale's own, "" if there is none."""
    notes, rounds = [], config["rounds"]
    if rounds is not None:
        notes.append(
            f"runs are stopped after at most {rounds} communication round{'s' * (rounds > 1)}, and "
            "their learning-rate schedules are not shortened with them"
        )
    if config["set"]:
        settings = ", ".join(text.replace("=", " = ", 1) for text in config["set"])
        notes.append(f"set instead of what is declared: {settings}")
    return "; ".join(notes)


def _find(what: str, known: Mapping, key: object, where: str) -> object:
    """`known[key]`; ConfigError with the choices if there is none."""
    try:
        return known[key]
    except KeyError:
        name, *others = ("/".join(k) if isinstance(k, tuple) else k for k in (key, *known))
        raise ConfigError(f"no {what} {name}; {where} {', '.join(others) or 'none'}") from None
