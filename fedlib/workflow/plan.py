"""The matrix: which jobs a configuration asks for, with their files, specifications and code.

`Plan(config)` is a pure function of the configuration, of the papers' declarations and of the code
on disk. The Snakefile, `scripts/plan.py` and the tests all ask it. It runs each time a Snakefile is
read, so it imports the standard library only.

A *stage* is a rule with a script: download, partition, train, evaluate, events, metrics, table,
figure, report. What tells the jobs of a stage apart are its wildcards, such as paper="pfedmm",
federation="digits", label="fedem", seed=0. A job is given two values: its *specification*, the
canonical JSON of everything that determines its output besides its input files, and the *digest*
of its code (`fedlib.workflow.provenance`). Either changing makes the job run again, and nothing
else does.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fedlib import papers
from fedlib.data import downloads
from fedlib.errors import ConfigError
from fedlib.files import canonical_json
from fedlib.run_spec import architectures, run_roots, run_weights
from fedlib.spec import Data, Figure, Paper, Run, Table
from fedlib.workflow import packing, shown
from fedlib.workflow.config import DEFAULTS, check, check_choice, check_unique, normalised
from fedlib.workflow.provenance import code_digest, registered

# Every file and folder of the workflow. {raw} and {folder} are the plan's, the rest are wildcards.
_CUT = "{paper}/{federation}{replicate}"
_SEED = "{paper}/{federation}/{label}/seed{seed}"
_RUN = "results/{folder}/runs/" + _SEED
_TABLE = "results/{folder}/tables/{paper}/{table}"
_FIGURE = "figures/{folder}/{paper}/{figure}"
_LOGS = "results/{folder}/logs"
_BENCHMARKS = "results/{folder}/benchmarks"
PATHS = {
    "receipt": "{raw}/{dataset}.json",
    "shards": "results/{folder}/shards/" + _CUT + ".h5",
    "manifest": "results/{folder}/shards/" + _CUT + ".json",
    "runs": "results/{folder}/runs/{paper}",
    "state": _RUN + "/state.pt",
    "history": _RUN + "/history.h5",
    "evaluation": _RUN + "/evaluation.h5",
    # A folder for each run, because TensorBoard names runs by folders; and it looks for "tfevents".
    "events": "results/{folder}/tensorboard/" + _SEED + "/events.out.tfevents.fedlib",
    "checkpoints": "results/{folder}/.checkpoints/" + _SEED,
    "metrics": "results/{folder}/metrics/{paper}.parquet",
    "metrics_csv": "results/{folder}/metrics/{paper}.csv",
    "clients": "results/{folder}/metrics/{paper}.clients.parquet",
    "results": "results/{folder}",
    "figures": "figures/{folder}",
    "table_csv": _TABLE + ".csv",
    "table_md": _TABLE + ".md",
    "table_tex": _TABLE + ".tex",
    "figure_pdf": _FIGURE + ".pdf",
    "figure_png": _FIGURE + ".png",
    "report": "results/{folder}/REPORT.md",
    "published": "fedlib/papers/published/{paper}.csv",
    "download_log": _LOGS + "/download/{dataset}.log",
    "partition_log": _LOGS + "/partition/" + _CUT + ".log",
    "train_log": _LOGS + "/train/" + _SEED + ".log",
    "evaluate_log": _LOGS + "/evaluate/" + _SEED + ".log",
    "events_log": _LOGS + "/events/" + _SEED + ".log",
    "metrics_log": _LOGS + "/metrics/{paper}.log",
    "table_log": _LOGS + "/table/{paper}/{table}.log",
    "figure_log": _LOGS + "/figure/{paper}/{figure}.log",
    "report_log": _LOGS + "/report.log",
    "partition_benchmark": _BENCHMARKS + "/partition/" + _CUT + ".jsonl",
    "train_benchmark": _BENCHMARKS + "/train/" + _SEED + ".jsonl",
    "evaluate_benchmark": _BENCHMARKS + "/evaluate/" + _SEED + ".jsonl",
    "events_benchmark": _BENCHMARKS + "/events/" + _SEED + ".jsonl",
    "metrics_benchmark": _BENCHMARKS + "/metrics/{paper}.jsonl",
    "table_benchmark": _BENCHMARKS + "/table/{paper}/{table}.jsonl",
    "figure_benchmark": _BENCHMARKS + "/figure/{paper}/{figure}.jsonl",
    "report_benchmark": _BENCHMARKS + "/report.jsonl",
}

# Wildcards of each stage, in the order in which `scripts/plan.py spec` and file names give them.
# A partition has one more where seeds do not share it (`Data.per_seed`): "replicate", "/seed3".
STAGES = {
    "download": ("dataset",),
    "partition": ("paper", "federation"),
    "train": ("paper", "federation", "label", "seed"),
    "evaluate": ("paper", "federation", "label", "seed"),
    "events": ("paper", "federation", "label", "seed"),
    "metrics": ("paper",),
    "table": ("paper", "table"),
    "figure": ("paper", "figure"),
    "report": (),
}
WILDCARDS = {
    "paper": r"[a-z0-9_]+",
    "dataset": r"[a-z0-9_]+",
    "federation": r"[a-z0-9_.-]+",
    "replicate": r"(?:/seed\d+)?",
    "label": r"[a-z0-9_.-]+",
    "table": r"[a-z0-9_-]+",
    "figure": r"[a-z0-9_-]+",
    "seed": r"\d+",
}


class Cell(NamedTuple):
    """One training run with its seed."""

    paper: str
    federation: str
    label: str
    seed: int


class Plan:
    """What a configuration asks for.

    Attributes:
      config: the configuration with every key present (see config.yaml).
      scale: one of `fedlib.spec.SCALES`.
      folder: name of the folder below results/ and figures/: the scale, with the tag if any.
      folder_note: what makes this folder differ from the scale's own, "" if nothing does.
      papers: by name, each as declared but with the configuration's seeds, rounds and selection.
    """

    def __init__(self, config: Mapping):
        """Check `config` and the declarations it selects.

        Raises:
          ConfigError: naming the key, its value and the choices.
        """
        self.config = DEFAULTS | normalised(config)
        check(self.config)
        self.scale: str = self.config["scale"]
        self.folder = "-".join(filter(None, [self.scale, self.config["tag"]]))
        self.folder_note = _folder_note(self.config["rounds"], self.config["precision"])
        names = self.config["papers"]
        self.papers: dict[str, Paper] = {}
        for name in papers.names() if names is None else names:
            paper = _declared(name, self.scale)
            _check_paper(paper, name, self.scale)
            self.papers[name] = paper
        _check_selection(self.config, self.papers.values())
        selected = {name: _selected(paper, self.config) for name, paper in self.papers.items()}
        # Without a word on papers, those are meant that have what the other filters name.
        self.papers = {name: paper for name, paper in selected.items() if paper.runs}
        self._data = {
            (name, data.name): data for name, paper in self.papers.items() for data in paper.data
        }
        self._runs = {
            (name, run.federation, run.label): run
            for name, paper in self.papers.items()
            for run in paper.runs
        }
        self._run_specs: dict[tuple, dict] = {}
        self._earlier: dict[tuple, Run | None] = {}

    # --- What there is -------------------------------------------------------------------------

    def cells(self, paper: str | None = None) -> list[Cell]:
        """Every training run of `paper`, or of all papers."""
        return [
            Cell(name, run.federation, run.label, seed)
            for name in ([paper] if paper else self.papers)
            for run in self._paper(name).runs
            for seed in self._paper(name).seeds_of(run)
        ]

    def datasets(self) -> list[str]:
        """Data sets to download, pretrained weights included, sorted."""
        used = {data.dataset for data in self._data.values()}
        return sorted(used.union(*(run_weights(vars(run)) for run in self._runs.values())))

    def jobs(self) -> Iterator[tuple[str, dict]]:
        """Every job as (stage, wildcards), each after the jobs whose output it reads."""
        yield from (("download", {"dataset": dataset}) for dataset in self.datasets())
        yield from (("partition", wildcards) for wildcards in self.partitions())
        optional = ("events",) if self.config["tensorboard"] else ()
        yield from (("train", cell._asdict()) for cell in sorted(self.cells(), key=self._chain))
        for stage in ("evaluate", *optional):
            yield from ((stage, cell._asdict()) for cell in self.cells())
        yield from (("metrics", {"paper": paper}) for paper in self.papers)
        for paper, declared in self.papers.items():
            yield from (("table", {"paper": paper, "table": name}) for name in declared.tables)
            yield from (("figure", {"paper": paper, "figure": name}) for name in declared.figures)
        yield "report", {}

    def partitions(self) -> list[dict]:
        """Wildcards of every partition: one of a federation, or one of each of its seeds."""
        found: dict[tuple, dict] = {names: {} for names in self._data}
        for paper, federation, _, seed in self.cells():
            found[paper, federation][self.replicate(paper, federation, seed)] = True
        return [
            {"paper": paper, "federation": federation} | ({"replicate": one} if one else {})
            for (paper, federation), replicates in found.items()
            for one in replicates
        ]

    def replicate(
        self, paper: str, federation: str, seed: object = None, replicate: str = "", **_: object
    ) -> str:
        """The wildcard `replicate` of the partition that a job makes or reads, from its others.

        Raises:
          ConfigError: if it takes a seed to tell, or one is named although all share a partition.
        """
        name = f"{paper}/{federation}"
        if not self.data(paper, federation).per_seed:
            if replicate:
                raise ConfigError(f"no partition {name}{replicate}; all seeds share {name}")
            return ""
        if not replicate and seed is None:
            raise ConfigError(f"every seed has a partition {name} of its own; name {name}/seedSEED")
        return replicate or f"/seed{seed}"

    def run(self, paper: str, federation: str, label: str) -> Run:
        """A run as it will be trained, its rounds capped if the configuration says so."""
        key = (paper, federation, label)
        return _find("run", self._runs, key, "this configuration has")

    def data(self, paper: str, federation: str) -> Data:
        """A declared federation."""
        return _find("federation", self._data, (paper, federation), "this configuration has")

    def exhibit(self, stage: str, paper: str, name: str) -> Table | Figure:
        """The table or figure (`stage`) called `name`."""
        declared = getattr(self._paper(paper), stage + "s")
        return _find(stage, declared, name, f"{paper} at scale {self.scale} has")

    # --- Where it is ---------------------------------------------------------------------------

    def path(self, file: str, **wildcards: object) -> str:
        """Path of a file of `PATHS`; wildcards that are not given stay, as "{label}"."""
        given = {"raw": self.config["raw"], "folder": self.folder, **wildcards}
        if "{replicate}" in PATHS[file] and "replicate" not in given and "federation" in given:
            given["replicate"] = self.replicate(**wildcards)
        return re.sub(r"\{(\w+)\}", lambda m: str(given.get(m[1], m[0])), PATHS[file])

    def paths(self, file: str, jobs: Iterable[Mapping]) -> list[str]:
        """`path` for each of several jobs' wildcards."""
        return [self.path(file, **wildcards) for wildcards in jobs]

    def receipts(self) -> list[str]:
        """What downloading everything leaves behind."""
        return [self.path("receipt", dataset=dataset) for dataset in self.datasets()]

    def manifests(self) -> list[str]:
        """What cutting every data set into shards leaves behind."""
        return self.paths("manifest", self.partitions())

    def weights(self, paper: str, federation: str, label: str) -> list[str]:
        """Receipts of the pretrained weights that a run's model and modules start from, if any.

        Weights are downloaded as data sets are.
        """
        names = run_weights(vars(self.run(paper, federation, label)))
        return [self.path("receipt", dataset=name) for name in names]

    def earlier(self, paper: str, federation: str, label: str) -> Run | None:
        """The longest run that this one goes on from, as they differ in nothing but rounds.

        None if there is none, or if it is evaluated at its end and this one is not evaluated there.
        """
        key = (paper, federation, label)
        if key not in self._earlier:
            run, declared = self.run(*key), self._paper(paper)
            before = list(declared.runs).index(run)  # of equally long runs, the first is earlier
            known = [
                other
                for number, other in enumerate(declared.runs)
                if (other.rounds, number) < (run.rounds, before)
                and _goes_on(run, other)
                and {*declared.seeds_of(run)} <= {*declared.seeds_of(other)}
            ]
            self._earlier[key] = max(known, key=lambda other: other.rounds, default=None)
        return self._earlier[key]

    def earlier_files(self, paper: str, federation: str, label: str, seed: object) -> list[str]:
        """State and history of the run that this one goes on from; empty if it starts afresh."""
        run = self.earlier(paper, federation, label)
        if run is None:
            return []
        names = {"paper": paper, "federation": federation, "label": run.label, "seed": seed}
        return [self.path(file, **names) for file in ("state", "history")]

    def published(self, stage: str, paper: str, name: str) -> list[str]:
        """The paper's own numbers, relative to the repository; empty if the exhibit has none."""
        has = self.exhibit(stage, paper, name).published is not None
        return [self.path("published", paper=paper)] if has else []

    def run_files(self, file: str, paper: str) -> list[str]:
        """`file` ("history", "evaluation") of all runs of a paper."""
        return [self.path(file, **cell._asdict()) for cell in self.cells(paper)]

    def exhibits(self, *files: str) -> list[str]:
        """Those `files` ("table_md", "figure_png", ...) of all tables and figures."""
        return [
            self.path(file, **wildcards)
            for stage, wildcards in self.jobs()
            for file in files
            if file.startswith(stage)
        ]

    def events(self) -> list[str]:
        """Event files of all runs, if the configuration asks for them."""
        return self.paths("events", [job for stage, job in self.jobs() if stage == "events"])

    def targets(self) -> list[str]:
        """Everything a reader wants: the report, the tables, the figures and the event files."""
        files = ("table_csv", "table_md", "table_tex", "figure_pdf", "figure_png")
        return [self.path("report"), *self.exhibits(*files), *self.events()]

    def about(self) -> dict:
        """Scale, data and weights of every paper, for the front page of the report."""
        papers = [
            {
                "title": paper.title,
                "citation": paper.citation,
                "scale_note": paper.scale_note,
                "seeds": list(paper.seeds),
                "federations": [
                    {"title": data.title, "notes": list(data.notes), "weights": weights}
                    for data, weights in zip(paper.data, _weights_of(paper), strict=True)
                    if data in _families(paper)
                ],
            }
            for paper in self.papers.values()
        ]
        return {"folder_note": self.folder_note, "papers": papers}

    # --- What each job is given ----------------------------------------------------------------

    def spec(self, stage: str, **wildcards: object) -> str:
        """Canonical JSON of what determines the output of a job, besides its input files.

        Raises:
          ConfigError: for a stage or job that the plan does not have.
        """
        return canonical_json(self._spec(stage, **wildcards))

    def roots(self, stage: str, **wildcards: object) -> tuple[str, ...]:
        """Roots of the code of a job: its script, and the modules that it loads by name.

        Raises:
          ConfigError: for a stage or job that the plan does not have.
        """
        script = f"scripts/{stage}.py"
        match stage, wildcards:
            case "partition", {"paper": paper, "federation": federation}:
                data = self.data(paper, federation)
                source, kind = f"sources.{data.dataset}", f"partitions.{data.partition['kind']}"
                return script, f"fedlib.data.{source}", f"fedlib.data.{kind}"
            case "train" | "evaluate", {"paper": paper, "federation": federation, "label": label}:
                return run_roots(stage, vars(self.run(paper, federation, label)))
            case "table" | "figure", {"paper": paper}:
                kind = self.exhibit(stage, paper, wildcards[stage]).kind
                return script, f"fedlib.{stage}s.{kind}"
            case "download", {"dataset": _}:
                return (script,)
            case "events" | "metrics" | "report", _:
                return (script,)
        raise _no_job(stage, wildcards)

    def code(self, stage: str, **wildcards: object) -> str:
        """Digest of the code of a job."""
        return code_digest(*self.roots(stage, **wildcards))

    def _spec(self, stage: str, **wildcards: object) -> dict:
        match stage, wildcards:
            case "download", {"dataset": dataset}:
                sources = self._sources(dataset)
                files = downloads.digest(dataset, sources)
                return {"dataset": dataset, "sources": sources, "files": files}
            case "partition", {"paper": paper, "federation": federation}:
                seed = self.replicate(**wildcards).removeprefix("/seed")
                return self.data(paper, federation).spec(int(seed) if seed else None)
            case "train" | "events", {"seed": seed, **names}:
                return self._run_spec(int(seed), **names)
            case "evaluate", {"seed": seed, **names}:
                return {**self._run_spec(int(seed), **names), "views": self._views(**names)}
            case "metrics", {"paper": paper}:
                return self._metrics_spec(self._paper(paper))
            case "table" | "figure", {"paper": paper}:
                exhibit = self._exhibit_spec(stage, self._paper(paper), wildcards[stage])
                return packing.packed(exhibit)
            case "report", _:
                return self._report_spec()
        raise _no_job(stage, wildcards)

    def _run_spec(self, seed: int, **names: str) -> dict:
        """`Run.spec`, asked once for all seeds and stages of a run: there are thousands of them."""
        key = tuple(names.items())
        if key not in self._run_specs:
            self._run_specs[key] = self.run(**names).spec(seed)
        return {**self._run_specs[key], "seed": seed}

    def _chain(self, cell: Cell) -> int:
        """How many runs a run goes on from, one after the other."""
        run = self.earlier(cell.paper, cell.federation, cell.label)
        return 0 if run is None else 1 + self._chain(cell._replace(label=run.label))

    def _views(self, paper: str, federation: str, label: str) -> list[shown.Pattern]:
        """What a final evaluation scores: what is shown of the run, or everything."""
        if self.config["evaluate"] == "all":
            return [shown.EVERYTHING]
        declared = self._paper(paper)
        exhibits = [*declared.tables.values(), *declared.figures.values()]
        about = [x for x in exhibits if federation in x.federations and label in x.labels]
        return sorted(set().union(*(shown.views(x, federation, label) for x in about)))

    def _sources(self, dataset: str) -> list[str]:
        """The sources of a data set that its federations draw from; usually it has but one."""
        params = [data.params for data in self._data.values() if data.dataset == dataset]
        return sorted({p["source"] for p in params if "source" in p})

    def _metrics_spec(self, paper: Paper) -> dict:
        runs = []
        for run in paper.runs:
            data = self.data(paper.name, run.federation)
            runs.append(
                {
                    "federation": run.federation,
                    "dataset": data.dataset,
                    "partition": data.partition_label,
                    "label": run.label,
                    "method": run.method,
                    "seeds": list(paper.seeds_of(run)),
                }
            )
        return {"paper": paper.name, "runs": runs}

    def _exhibit_spec(self, stage: str, paper: Paper, name: str) -> dict:
        exhibit = self.exhibit(stage, paper.name, name)
        federations = [self.data(paper.name, federation) for federation in exhibit.federations]
        runs = [
            self._runs[paper.name, federation, label]
            for label in exhibit.labels
            for federation in exhibit.federations
            if (paper.name, federation, label) in self._runs
        ]
        return {
            "paper": paper.name,
            "name": name,
            "kind": exhibit.kind,
            "title": exhibit.title,
            "caption": exhibit.caption,
            "params": exhibit.params,
            "scale": self.scale,
            "scale_note": paper.scale_note,
            "folder_note": self.folder_note,
            "seeds": _common_seeds(paper, runs),
            "federations": [data.describe() for data in federations],
            "runs": [run.describe() for run in runs],
            "published": exhibit.published,
        }

    def _report_spec(self) -> dict:
        return {
            "scale": self.scale,
            "folder": self.folder,
            "folder_note": self.folder_note,
            "papers": [
                {
                    "name": paper.name,
                    "title": paper.title,
                    "citation": paper.citation,
                    "scale_note": paper.scale_note,
                    "seeds": list(paper.seeds),
                    "federations": [
                        {"name": data.name, "title": data.title, "notes": data.notes}
                        for data in _families(paper)
                    ],
                    "tables": _headings(paper.tables),
                    "figures": _headings(paper.figures),
                }
                for paper in self.papers.values()
            ],
        }

    def _paper(self, name: str) -> Paper:
        return _find("paper", self.papers, name, "this configuration has")


def _check_selection(config: Mapping, declared: Iterable[Paper]) -> None:
    """Raise ConfigError if a filter names what no selected paper declares, or leaves nothing."""
    declared = list(declared)
    runs = [run for paper in declared for run in paper.runs]
    where = f"{' and '.join(paper.name for paper in declared)} at scale {config['scale']}"
    for key, attribute in (("federations", "federation"), ("labels", "label")):
        choices = sorted({getattr(run, attribute) for run in runs})
        for value in config[key] or ():
            check_choice(key, value, choices, where)
    named = {data.dataset for paper in declared for data in paper.data if "source" in data.params}
    for choice in config["sources"] or ():
        dataset, separator, source = choice.partition(":")
        if not (separator and source):
            raise ConfigError(f"sources: {choice!r} is not DATASET:SOURCE, such as femnist:leaf")
        check_choice("sources", dataset, sorted(named), f"with several sources {where}")
    empty = [paper for paper in declared if not _selected(paper, config).runs]
    if config["papers"] is None and len(empty) < len(declared):
        return
    for paper in empty:
        raise ConfigError(
            f"papers: {paper.name} has no run left; federations {config['federations']} and "
            f"labels {config['labels']} select none of its "
            f"{', '.join(f'{run.federation}/{run.label}' for run in paper.runs)}"
        )


def _declared(name: str, scale: str) -> Paper:
    try:
        module = papers.load(name)
    except ConfigError as error:
        raise ConfigError(f"papers: {error}") from None
    return module.declare(scale)


def _check_paper(paper: Paper, name: str, scale: str) -> None:
    """Raise ConfigError if a declaration contradicts itself or names what does not exist."""
    where = f"papers.{name}"
    if (paper.name, paper.scale) != (name, scale):
        raise ConfigError(
            f"{where}: declare({scale!r}) returned the paper {paper.name!r} at {paper.scale!r}"
        )
    _check_names(f"{where}.data", "federation", [data.name for data in paper.data])
    _check_names(f"{where}.runs", "label", {run.label for run in paper.runs})
    _check_names(f"{where}.tables", "table", paper.tables)
    _check_names(f"{where}.figures", "figure", paper.figures)
    check_unique(f"{where}.seeds", paper.seeds)
    for run in paper.runs:
        check_unique(f"{where}.runs[{run.federation}/{run.label}].seeds", run.seeds)
    check_unique(f"{where}.runs", [f"{run.federation}/{run.label}" for run in paper.runs])
    federations = [data.name for data in paper.data]
    weights = downloads.weights()
    datasets, kinds = registered("data.sources"), registered("data.partitions")
    for data in paper.data:
        at = f"{where}.data[{data.name}]"
        check_choice(f"{at}.dataset", data.dataset, datasets)
        check_choice(f"{at}.partition.kind", data.partition.get("kind"), kinds)
    methods, models = registered("methods"), registered("models")
    for run in paper.runs:
        at = f"{where}.runs[{run.federation}/{run.label}]"
        check_choice(f"{at}.federation", run.federation, federations)
        check_choice(f"{at}.method", run.method, methods)
        check_choice(f"{at}.model", run.model, models)
        for name, module in architectures(run.modules).items():
            check_choice(f"{at}.modules[{name}].model", module.get("model"), models)
            if module.get("weights") is not None:
                check_choice(f"{at}.modules[{name}].weights", module["weights"], weights)
        if run.weights is not None:
            check_choice(f"{at}.weights", run.weights, weights)
    for stage in ("table", "figure"):
        for key, exhibit in getattr(paper, stage + "s").items():
            _check_exhibit(f"{where}.{stage}s[{key}]", stage, exhibit, paper)


def _check_exhibit(where: str, stage: str, exhibit: Table | Figure, paper: Paper) -> None:
    check_choice(f"{where}.kind", exhibit.kind, registered(stage + "s"))
    check_unique(f"{where}.labels", exhibit.labels)
    check_unique(f"{where}.federations", exhibit.federations)
    on_them = [run for run in paper.runs if run.federation in exhibit.federations]
    federations = [run.federation for run in paper.runs if run.label in exhibit.labels]
    for federation in exhibit.federations:
        check_choice(f"{where}.federations", federation, federations, "its labels run on")
    for label in exhibit.labels:
        labels = [run.label for run in on_them]
        check_choice(f"{where}.labels", label, labels, "its federations have runs")
    if not _common_seeds(paper, [run for run in on_them if run.label in exhibit.labels]):
        raise ConfigError(f"{where}.labels: there is no seed that all of its runs have")


def _common_seeds(paper: Paper, runs: Iterable[Run]) -> list[int]:
    """The seeds that all of these runs have, in the order of the first one's."""
    seeds = [paper.seeds_of(run) for run in runs]
    return [seed for seed in seeds[0] if all(seed in others for others in seeds)]


def _check_names(key: str, wildcard: str, names: Iterable[str]) -> None:
    """Raise ConfigError for a name that cannot be a part of a path."""
    for name in names:
        if not re.fullmatch(WILDCARDS[wildcard], name) or name.startswith("."):
            raise ConfigError(f"{key}: the name {name!r} must match {WILDCARDS[wildcard]}")
    check_unique(key, names)


def _selected(paper: Paper, config: Mapping) -> Paper:
    """The paper as the configuration has it: its seeds and rounds, and what it selects."""
    wanted = config["federations"], config["labels"]
    seeds = config["seeds"]
    runs = tuple(
        _changed(run, config["rounds"], config["precision"], seeds)
        for run in paper.runs
        if _passes(run.federation, wanted[0]) and _passes(run.label, wanted[1])
    )
    used = {run.federation for run in runs}
    pairs = {(run.federation, run.label) for run in runs}
    return dataclasses.replace(
        paper,
        seeds=tuple(paper.seeds if seeds is None else seeds),
        data=tuple(
            _from_source(data, config["sources"]) for data in paper.data if data.name in used
        ),
        runs=runs,
        tables=_narrowed(paper.tables, pairs),
        figures=_narrowed(paper.figures, pairs),
    )


def _families(paper: Paper) -> list[Data]:
    """The federations without those that differ from an earlier one in one parameter alone."""
    first: dict[str, Data] = {}
    for data in paper.data:
        first.setdefault(data.describe()["family"], data)
    return list(first.values())


def _from_source(data: Data, sources: list[str] | None) -> Data:
    """The federation, made from the raw files that the configuration prefers, and noted so."""
    for dataset, _, source in (choice.partition(":") for choice in sources or ()):
        declared = data.params.get("source")
        if dataset == data.dataset and source != declared:
            note = f"{data.title}: from the raw files of source {source} instead of {declared}."
            params = {**data.params, "source": source}
            return dataclasses.replace(data, params=params, notes=(*data.notes, note))
    return data


def _passes(value: str, wanted: list[str] | None) -> bool:
    return wanted is None or value in wanted


def _changed(run: Run, cap: int | None, precision: str | None, seeds: list[int] | None) -> Run:
    """The run with at most `cap` rounds, in another precision, with the paper's seeds if asked."""
    return dataclasses.replace(
        run,
        rounds=run.rounds if cap is None else min(cap, run.rounds),
        precision=precision or run.precision,
        seeds=run.seeds if seeds is None else (),
    )


def _narrowed(exhibits: Mapping[str, Table], pairs: set[tuple[str, str]]) -> dict[str, Table]:
    """The exhibits without the labels and federations that have no run; dropped if none is left."""
    narrowed = {}
    for name, exhibit in exhibits.items():
        shown = [(f, label) for f in exhibit.federations for label in exhibit.labels]
        shown = [pair for pair in shown if pair in pairs]
        if shown:
            federations, labels = ({pair[i] for pair in shown} for i in (0, 1))
            narrowed[name] = dataclasses.replace(
                exhibit,
                labels=tuple(label for label in exhibit.labels if label in labels),
                federations=tuple(f for f in exhibit.federations if f in federations),
            )
    return narrowed


def _goes_on(run: Run, other: Run) -> bool:
    """Whether `run` begins like `other`, and is evaluated whenever that is."""
    return (
        (other.federation, other.method) == (run.federation, run.method)
        and (other.rounds % run.evaluate_every == 0 or other.rounds == run.rounds)
        and dataclasses.replace(other, rounds=run.rounds).spec(0) == run.spec(0)
    )


def _weights_of(paper: Paper) -> list[str]:
    """What the models of each federation start from."""
    start: dict[str, str] = {}
    for run in paper.runs:
        start[run.federation] = " and ".join(run_weights(vars(run))) or "random weights"
    return [start[data.name].replace("_", " ") for data in paper.data]


def _folder_note(rounds: int | None, precision: str | None) -> str:
    notes = []
    if rounds is not None:
        notes.append(
            f"runs are stopped after at most {rounds} communication round{'s' * (rounds > 1)}, and "
            "their learning-rate schedules are not shortened with them"
        )
    if precision is not None:
        notes.append(f"models are computed in {precision}")
    return "; ".join(notes)


def _headings(exhibits: Mapping[str, Table]) -> list[dict]:
    return [
        {"name": name, "title": exhibit.title, "caption": exhibit.caption}
        for name, exhibit in exhibits.items()
    ]


def _find(what: str, known: Mapping, key: object, where: str) -> object:
    """`known[key]`, or a ConfigError that lists the choices."""
    try:
        return known[key]
    except KeyError:
        name, *others = ("/".join(k) if isinstance(k, tuple) else k for k in (key, *known))
        raise ConfigError(f"no {what} {name}; {where} {', '.join(others) or 'none'}") from None


def _no_job(stage: str, wildcards: Mapping) -> ConfigError:
    if stage not in STAGES:
        return ConfigError(f"no stage {stage!r}; there are {', '.join(STAGES)}")
    return ConfigError(f"{stage} needs {', '.join(STAGES[stage])}; got {dict(wildcards)}")
