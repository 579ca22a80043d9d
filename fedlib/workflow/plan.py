"""The plan: all jobs of a configuration, with their files, specifications and code.

`Plan(config)` is a function of the configuration, the papers' declarations and the code on disk.
The Snakefile, the commands of `fedlib.cli` and the tests use it. It is made each time a Snakefile
is read, so it imports the standard library only.

A *stage* is a rule with a script: download, partition, tune, train, evaluate, metrics, table,
figure, report. Wildcards name a job of a stage, such as paper="pfedmm", federation="digits",
label="fedem", seed=1234. A job gets two values: its *specification*, the canonical JSON of
everything that determines its output besides its input files, and the *digest* of its code
(`fedlib.workflow.provenance`). The job runs again if one of them changes.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache

from fedlib.data import downloads
from fedlib.environment import ROOT
from fedlib.errors import ConfigError
from fedlib.files import canonical_json
from fedlib.run_spec import RunSpec
from fedlib.seals import spec_digest
from fedlib.spec import RunName
from fedlib.workflow import specs
from fedlib.workflow.declarations import Training
from fedlib.workflow.layout import MAKERS, STAGES
from fedlib.workflow.provenance import code_digest
from fedlib.workflow.selection import Selection

# Stages that show all runs of a paper, or of all papers. Their specifications are files: they list
# every run, and an argument is limited to 128 kB.
SHOWING = ("metrics", "table", "figure", "report")


class Plan(Selection):
    """The jobs of a configuration."""

    def __init__(
        self,
        config: Mapping,
        finished: Collection[Training] = (),
        unfit: Mapping[RunName, str] | None = None,
    ):
        """See `Selection`; caches values that thousands of jobs need."""
        super().__init__(config, finished, unfit)
        self.digest, self._evaluation = cache(self.digest), cache(self._evaluation)

    # --- Jobs ----------------------------------------------------------------------------------

    def downloads(self) -> list[str]:
        """What to download (`downloads.key`), pretrained weights included, sorted."""
        used = {self.download(*federation) for federation in self._data}
        return sorted(used.union(*(run.pretrained() for run in self.runs.values())))

    def download(self, paper: str, federation: str, **_: object) -> str:
        """The download that a federation is cut from."""
        data = self.data(paper, federation)
        return downloads.key(data.dataset, data.params.get("source"))

    def jobs(self) -> Iterator[tuple[str, dict]]:
        """Every job as (stage, wildcards), each after the jobs whose output it reads."""
        yield from (("download", {"dataset": dataset}) for dataset in self.downloads())
        yield from (("partition", wildcards) for wildcards in self.partitions())
        yield from (("tune", wildcards) for wildcards in self.tunings())
        for stage in ("train", "evaluate"):
            yield from ((stage, training._asdict()) for training in self.trainings())
        yield from (("metrics", {"paper": paper}) for paper in self.papers)
        for name, paper in self.papers.items():
            yield from ((stage, {"paper": name, stage: key}) for stage, key, _ in paper.exhibits())
        yield "report", {}

    def partitions(self) -> list[dict]:
        """Wildcards of every partition: one per federation, or one per federation and seed."""
        found: dict[tuple, dict] = {names: {} for names in self._data}
        for job in (*(training._asdict() for training in self.trainings()), *self.tunings()):
            found[job["paper"], job["federation"]][self.replicate(**job)] = True
        return [
            {"paper": paper, "federation": federation} | ({"replicate": one} if one else {})
            for (paper, federation), replicates in found.items()
            for one in replicates
        ]

    def tunings(self) -> list[dict]:
        """Wildcards of every tuning: one per run that is tuned, or one per run and seed."""
        every = (tuning for one in self.trainings() for tuning in self.tunings_of(*one))
        return [*{tuple(tuning.values()): tuning for tuning in every}.values()]

    # --- Files ---------------------------------------------------------------------------------

    def files(self, *names: str, paper: str | None = None) -> list[str]:
        """Files of these names in `RESULTS`, of all jobs or of those of one paper."""
        return [
            self.path(name, **job)
            for stage, job in self.jobs()
            if paper in (None, job.get("paper"))
            for name in names
            if MAKERS[name] == stage
        ]

    def targets(self) -> list[str]:
        """The report, tables and figures, and the files behind them, without data and shards.

        Because all are targets, a deleted file is made again.
        """
        hidden = ("download", "partition")
        return self.files(*(name for name, stage in MAKERS.items() if stage not in hidden))

    def weights(self, paper: str, federation: str, label: str, **_: object) -> list[str]:
        """Receipts of the pretrained weights that a run's model and modules start from, if any.

        Weights are downloaded like data sets.
        """
        names = self.run(paper, federation, label).pretrained()
        return [self.path("receipt", dataset=name) for name in names]

    def choice(self, paper: str, federation: str, label: str, seed: object = None) -> list[str]:
        """The file with a run's tuned values; empty if it is not tuned."""
        return [self.path("choice", **x) for x in self.tunings_of(paper, federation, label, seed)]

    def published_files(self, stage: str, paper: str, name: str) -> list[str]:
        """The paper's own numbers, relative to the repository; empty if the exhibit has none.

        A figure also has the paper's curves, if there are any.
        """
        if self.exhibit(stage, paper, name).published is None:
            return []
        curves = self.path("curves", paper=paper)
        has_curves = stage == "figure" and (ROOT / curves).exists()
        return [self.path("published", paper=paper), *[curves] * has_curves]

    # --- Specifications and code of jobs -------------------------------------------------------

    def spec(self, stage: str, **wildcards: object) -> str:
        """Canonical JSON of everything that determines a job's output, except its input files.

        Raises:
          ConfigError: for a job that the plan does not have.
          ValueError: for wildcards that no job of the stage has.
        """
        return canonical_json(self._spec(stage, **wildcards))

    def spec_option(self, stage: str, **wildcards: object) -> str:
        """The value of `--spec` for a job's script: the specification, or a file with it."""
        if stage not in SHOWING:
            return self.spec(stage, **wildcards)
        return "@" + self.path("specification", digest=self.digest(stage, **wildcards)[:16])

    def digest(self, stage: str, **wildcards: object) -> str:
        """Digest of the specification of a job, which its results contain."""
        return spec_digest(self._spec(stage, **wildcards))

    def roots(self, stage: str, **wildcards: object) -> tuple[str, ...]:
        """Roots of the code of a job: its script, and the modules that it loads by name.

        Raises:
          ConfigError: for a job that the plan does not have.
        """
        script = f"scripts/{stage}.py"
        names = [str(wildcards[name]) for name in STAGES[stage] if name in wildcards]
        match stage:
            case "partition":
                data = self.data(*names)
                source, kind = f"sources.{data.dataset}", f"partitions.{data.partition['kind']}"
                return script, f"fedlib.data.{source}", f"fedlib.data.{kind}"
            case "tune" | "train" | "evaluate":
                return self.run(*names[:3]).roots(stage)
            case "table" | "figure":
                return script, self.exhibit(stage, *names).module_name()
        return (script,)

    def code(self, stage: str, **wildcards: object) -> str:
        """Digest of the code of a job."""
        return code_digest(*self.roots(stage, **wildcards))

    def _spec(self, stage: str, **wildcards: object) -> dict:
        match stage, wildcards:
            case "download", {"dataset": dataset}:
                of = downloads.of_key(dataset)
                spec = {"dataset": dataset, "files": downloads.digest(*of)}
                state = downloads.state(*of, self.config["raw"])
                return spec | ({"state": state} if state else {})
            case "partition", {"paper": paper, "federation": federation}:
                seed = self.replicate(**wildcards).removeprefix("/seed")
                return self.data(paper, federation).spec(int(seed) if seed else None)
            case "tune", {**names}:
                return self._tuning(**names).to_json()
            case "train", {"seed": seed, **names}:
                return self._run_spec(int(seed), **names).to_json()
            case "evaluate", {"seed": seed, **names}:
                training = self._run_spec(int(seed), **names)
                return replace(training, **self._evaluation(**names)).to_json()
            case "metrics", {"paper": paper}:
                return specs.of_metrics(self, self.digest, self.paper(paper))
            case "table" | "figure", {"paper": paper}:
                name = wildcards[stage]
                return specs.of_exhibit(self, self.digest, stage, self.paper(paper), name).to_json()
            case "report", names if not names:
                return specs.of_report(self, self.digest)
        raise ValueError(f"no job of stage {stage!r} has the wildcards {wildcards}")

    def _run_spec(self, seed: int, **names: str) -> RunSpec:
        """`Run.spec` with the digest of the partition for training."""
        run = self.run(**names)
        if seed not in (seeds := self.paper(names["paper"]).seeds_of(run)):
            name, known = RunName(**names), ", ".join(map(str, seeds))
            raise ConfigError(f"no run {name}/seed{seed}; it is declared with {known}")
        spec = self._on(seed, **names)
        for tuning in self.tunings_of(**names, seed=seed):
            spec = replace(spec, tuned=self.digest("tune", **tuning))
        return spec

    def _tuning(self, paper: str, federation: str, label: str, for_seed: str = "") -> RunSpec:
        """`Run.spec` with the tuning's seed and partition, and the declared tuning."""
        if not (tuning := self.run(paper, federation, label).tuning):
            raise ConfigError(f"{paper}/{federation}/{label} is not tuned")
        how = {name: x for name, x in tuning.items() if name not in ("seed", "per_seed")}
        seed = self.tuning_seed(paper, federation, label, for_seed)
        return replace(self._on(seed, paper, federation, label), tuning=how)

    def _on(self, seed: int, paper: str, federation: str, label: str) -> RunSpec:
        """`Run.spec` with a seed, and the digest of that seed's partition."""
        data = {"paper": paper, "federation": federation}
        data["replicate"] = self.replicate(**data, seed=seed)
        return self.run(paper, federation, label).spec(seed, self.digest("partition", **data))

    def _evaluation(self, paper: str, federation: str, label: str) -> dict:
        """Views of the run that exhibits show, and metrics of predictions.

        They do not depend on the selection, so that runs of several selections fit together.
        """
        declared = self.whole[paper]
        views = sorted(declared.views_of(federation, label))
        shown = (x.of_predictions for x in declared.exhibits_of(federation, label))
        return {"views": views, "predictions": sorted(set().union(*shown))}
