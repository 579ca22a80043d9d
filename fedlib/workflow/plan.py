"""The plan: all jobs of a configuration, with their files, specifications and code.

`Plan(config)` is a pure function of the configuration, of the papers' declarations and of the code
on disk. The Snakefile, the commands of `fedlib.cli` and the tests use it. It runs each time a
Snakefile is read, so it imports the standard library only.

A *stage* is a rule with a script: download, partition, train, evaluate, events, metrics, table,
figure, report. Wildcards name a job of a stage, such as paper="pfedmm", federation="digits",
label="fedem", seed=0. A job gets two values: its *specification*, the canonical JSON of everything
that determines its output besides its input files, and the *digest* of its code
(`fedlib.workflow.provenance`). The job runs again if one of them changes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from fedlib.data import downloads
from fedlib.errors import ConfigError
from fedlib.files import canonical_json
from fedlib.run_spec import run_roots, run_weights
from fedlib.seals import spec_digest
from fedlib.spec import Data, Paper, Run
from fedlib.spec.exhibits import EVERYTHING, Exhibit
from fedlib.workflow import declarations, overrides, own_methods, specs
from fedlib.workflow.config import DEFAULTS, check, normalised
from fedlib.workflow.declarations import Training, cells_of
from fedlib.workflow.layout import PATHS, STAGES
from fedlib.workflow.provenance import code_digest
from fedlib.workflow.selection import folder_note, selected

RUN_FILES = ("state", "history", "evaluation")
# Stages whose specifications are files: they list every run, and an argument may have 128 kB.
LONG = ("metrics", "table", "figure", "report")


class Plan:
    """What a configuration asks for.

    Attributes:
      config: the configuration with every key present (see config.yaml).
      scale: one of `fedlib.spec.SCALES`.
      folder: name of the folder below results/ and figures/: the scale, with the tag if any.
      idle: overrides of `set` that equal the declared value.
      folder_note: what makes this folder differ from the scale's own, "" if nothing does.
      broken: by name, why a paper cannot be read that the configuration does not ask for by name.
      declared: papers by name, each as it is declared, of which `papers` is a selection.
      papers: by name, each as declared but with the configuration's seeds, rounds and selection.
      runs: of these, by paper, federation and label.
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
        self.declared, self.broken = declarations.readable(self.scale, self.config["papers"])
        found = own_methods.added(self.declared, self.config["methods"] or ())
        self.papers: dict[str, Paper] = overrides.applied(found, self.config["set"] or ())
        for name, paper in self.papers.items():
            declarations.check_paper(paper, name, self.scale)
        declarations.check_selection(self.config, self.papers.values())
        wanted = {name: selected(paper, self.config) for name, paper in self.papers.items()}
        # Without `papers`, the papers are those that contain what the other filters name.
        self.papers = {name: paper for name, paper in wanted.items() if paper.runs}
        overrides.check_used(self.papers, self.config["set"] or ())
        names = self.papers if self.config["set"] else ()
        chosen = {name: selected(found[name], self.config) for name in names}
        self.idle = overrides.idle(chosen, self.config["set"] or ())
        self.folder_note = folder_note(self.config, self.idle)
        self._data = {
            (name, data.name): data for name, paper in self.papers.items() for data in paper.data
        }
        self.runs = {
            (name, run.federation, run.label): run
            for name, paper in self.papers.items()
            for run in paper.runs
        }
        self._run_specs: dict[tuple, dict] = {}
        self._digests: dict[tuple, str] = {}
        self._run_evaluated: dict[tuple, dict] = {}

    # --- What there is -------------------------------------------------------------------------

    def cells(self, paper: str | None = None) -> list[Training]:
        """Every training run of `paper`, or of all papers."""
        names = [paper] if paper else self.papers
        return [cell for name in names for cell in cells_of(self._paper(name))]

    def turns(self) -> list[str]:
        """The papers in the order of work: the quickest first."""
        rounds = {
            name: sum(self.run(*x[:3]).rounds for x in self.cells(name)) for name in self.papers
        }
        return sorted(rounds, key=rounds.get)

    def datasets(self) -> list[str]:
        """Data sets to download, pretrained weights included, sorted."""
        used = {data.dataset for data in self._data.values()}
        return sorted(used.union(*(run_weights(vars(run)) for run in self.runs.values())))

    def jobs(self) -> Iterator[tuple[str, dict]]:
        """Every job as (stage, wildcards), each after the jobs whose output it reads."""
        yield from (("download", {"dataset": dataset}) for dataset in self.datasets())
        yield from (("partition", wildcards) for wildcards in self.partitions())
        optional = ("events",) if self.config["tensorboard"] else ()
        for stage in ("train", "evaluate", *optional):
            yield from ((stage, cell._asdict()) for cell in self.cells())
        yield from (("metrics", {"paper": paper}) for paper in self.papers)
        for name, paper in self.papers.items():
            yield from (("table", {"paper": name, "table": table}) for table in paper.tables)
            yield from (("figure", {"paper": name, "figure": figure}) for figure in paper.figures)
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
        return _find("run", self.runs, key, "this configuration has")

    def data(self, paper: str, federation: str) -> Data:
        """A declared federation."""
        return _find("federation", self._data, (paper, federation), "this configuration has")

    def exhibit(self, stage: str, paper: str, name: str) -> Exhibit:
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
        """Receipts of all downloads."""
        return [self.path("receipt", dataset=dataset) for dataset in self.datasets()]

    def manifests(self) -> list[str]:
        """Manifests of all partitions."""
        return self.paths("manifest", self.partitions())

    def weights(self, paper: str, federation: str, label: str) -> list[str]:
        """Receipts of the pretrained weights that a run's model and modules start from, if any.

        Weights are downloaded as data sets are.
        """
        names = run_weights(vars(self.run(paper, federation, label)))
        return [self.path("receipt", dataset=name) for name in names]

    def settled_files(self, paper: str, federation: str, label: str, seed: object) -> list[str]:
        """State and history of the run that the evaluation of this one takes something from.

        Empty if it does everything itself, as where that run is not selected.
        """
        settler = self.runs.get((paper, federation, self.run(paper, federation, label).settled_by))
        if settler is None or int(seed) not in self._paper(paper).seeds_of(settler):
            return []
        names = {"paper": paper, "federation": federation, "label": settler.label, "seed": seed}
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
        """The report, the tables, the figures and the event files, and the files they are made of.

        So a deleted file is made again.
        """
        tables = ("table_csv", "table_md", "table_tex", "table_json")
        files = (*tables, "figure_pdf", "figure_png", "figure_svg", "figure_json")
        pages = [self.path(name) for name in ("report", "report_html")]
        runs = [self.paths(x, map(Training._asdict, self.cells())) for x in RUN_FILES]
        return [*pages, *self.exhibits(*files), *self.events(), *sum(runs, [])]

    # --- What each job is given ----------------------------------------------------------------

    def spec(self, stage: str, **wildcards: object) -> str:
        """Canonical JSON of what determines the output of a job, besides its input files.

        Raises:
          ConfigError: for a stage or job that the plan does not have.
        """
        return canonical_json(self._spec(stage, **wildcards))

    def given(self, stage: str, **wildcards: object) -> str:
        """What a job's script gets as `--spec`: the specification, or the file with a long one."""
        if stage not in LONG:
            return self.spec(stage, **wildcards)
        return "@" + self.path("specification", digest=self.digest(stage, **wildcards)[:16])

    def digest(self, stage: str, **wildcards: object) -> str:
        """Digest of the specification of a job, which its results contain."""
        key = (stage, *sorted(wildcards.items()))
        if key not in self._digests:
            self._digests[key] = spec_digest(self._spec(stage, **wildcards))
        return self._digests[key]

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
                return script, f"fedlib.report.{stage}s.{kind}"
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
                spec = {"dataset": dataset, "sources": sources, "files": files}
                state = downloads.state(dataset, sources, self.config["raw"])
                return spec | ({"state": state} if state else {})
            case "partition", {"paper": paper, "federation": federation}:
                seed = self.replicate(**wildcards).removeprefix("/seed")
                return self.data(paper, federation).spec(int(seed) if seed else None)
            case "train" | "events", {"seed": seed, **names}:
                return self._run_spec(int(seed), **names)
            case "evaluate", {"seed": seed, **names}:
                return self._run_spec(int(seed), **names) | self._evaluated(**names)
            case "metrics", {"paper": paper}:
                return specs.of_metrics(self, self._paper(paper))
            case "table" | "figure", {"paper": paper}:
                return specs.of_exhibit(self, stage, self._paper(paper), wildcards[stage])
            case "report", _:
                return specs.of_report(self)
        raise _no_job(stage, wildcards)

    def _run_spec(self, seed: int, **names: str) -> dict:
        """`Run.spec`, asked once for all seeds and stages of a run: there are thousands of them."""
        key = tuple(names[name] for name in ("paper", "federation", "label"))
        declarations.check_seed(self._paper(names["paper"]), self.run(**names), seed)
        if key not in self._run_specs:
            self._run_specs[key] = self.run(**names).spec(seed)
        data = {name: names[name] for name in ("paper", "federation")}
        data["replicate"] = self.replicate(**data, seed=seed)
        return {**self._run_specs[key], "seed": seed, "data": self.digest("partition", **data)}

    def _evaluated(self, paper: str, federation: str, label: str) -> dict:
        """What a final evaluation scores, and keeps: what is shown of the run, or all views."""
        key = (paper, federation, label)
        if key not in self._run_evaluated:
            declared = self._paper(paper)
            views = [EVERYTHING]
            if self.config["evaluate"] != "all":
                views = sorted(declared.views_of(federation, label))
            about = declared.exhibits_of(federation, label)
            predictions = any(exhibit.shows_predictions for exhibit in about)
            self._run_evaluated[key] = {"views": views, "predictions": predictions}
        return self._run_evaluated[key]

    def _sources(self, dataset: str) -> list[str]:
        """The sources of a data set that its federations draw from; usually it has but one."""
        params = [data.params for data in self._data.values() if data.dataset == dataset]
        return sorted({p["source"] for p in params if "source" in p})

    def _paper(self, name: str) -> Paper:
        return _find("paper", self.papers, name, "this configuration has")


def _find(what: str, known: Mapping, key: object, where: str) -> object:
    """`known[key]`; ConfigError with the choices if there is none."""
    try:
        return known[key]
    except KeyError:
        name, *others = ("/".join(k) if isinstance(k, tuple) else k for k in (key, *known))
        raise ConfigError(f"no {what} {name}; {where} {', '.join(others) or 'none'}") from None


def _no_job(stage: str, wildcards: Mapping) -> ConfigError:
    if stage not in STAGES:
        return ConfigError(f"no stage {stage!r}; there are {', '.join(STAGES)}")
    return ConfigError(f"{stage} needs {', '.join(STAGES[stage])}; got {dict(wildcards)}")
