"""The shell commands of the rules, the names of their jobs, and the files of long specifications.

<<<<<<< HEAD
They have Snakemake's placeholders. Settings that must not repeat a job are resources: the place of
raw files, and the way of computing.
=======
Commands have Snakemake's placeholders. What must not repeat a job if it changes is among the
resources: where raw files are, and how a result is computed.
>>>>>>> 4f79a98 (Drop features that nobody reads: printed commands, shared methods, idle remarks)
"""

import shlex
from pathlib import Path

from fedlib.errors import ConfigError
from fedlib.files import write_text
from fedlib.workflow.layout import STAGES
from fedlib.workflow.plan import LONG, Plan

COMMANDS = {
    "download": "python {resources.scripts:q}/download.py {wildcards.dataset}"
    " --spec {params.spec:q} --code {params.code} --raw {resources.raw:q} --receipt {output:q}"
    " {resources.mirror} >> {log:q} 2>&1",
    "partition": "python {resources.scripts:q}/partition.py --spec {params.spec:q}"
    " --code {params.code} --raw {resources.raw:q} --shards {output.shards:q}"
    " --manifest {output.manifest:q} >> {log:q} 2>&1",
    "tune": "python {resources.scripts:q}/tune.py --spec {params.spec:q} --code {params.code}"
    " --shards {input.shards:q} --manifest {input.manifest:q} {resources.weights}"
    " --trials {output.trials:q} --choice {output.choice:q}"
    " --checkpoints {resources.tuning:q} --device {resources.device}"
    " --gpus {resources.gpu} --executor {resources.executor} >> {log:q} 2>&1",
    "train": "python {resources.scripts:q}/train.py --spec {params.spec:q} --code {params.code}"
    " --shards {input.shards:q} --manifest {input.manifest:q} {resources.weights}"
    " {resources.choice} --state {output.state:q} --history {output.history:q}"
    " --checkpoints {resources.checkpoints:q} --device {resources.device}"
    " --gpus {resources.gpu} --executor {resources.executor} >> {log:q} 2>&1",
    "evaluate": "python {resources.scripts:q}/evaluate.py --spec {params.spec:q}"
    " --code {params.code} --shards {input.shards:q} --manifest {input.manifest:q}"
    " {resources.weights} {resources.settled}"
    " --state {input.state:q} --history {input.history:q}"
    " --checkpoints {resources.checkpoints:q} --out {output:q}"
    " --device {resources.device} --gpus {resources.gpu} --executor {resources.executor}"
    " >> {log:q} 2>&1",
    "metrics": "python {resources.scripts:q}/metrics.py --spec {params.spec:q} --code {params.code}"
    " --runs {resources.runs:q} --parquet {output.metrics:q} --csv {output.metrics_csv:q}"
    " --clients {output.clients:q} >> {log:q} 2>&1",
    "table": "python {resources.scripts:q}/table.py --spec {params.spec:q} --code {params.code}"
    " --metrics {input.metrics:q} --clients {input.clients:q} {resources.published}"
    " --csv {output.table_csv:q} --md {output.table_md:q} --tex {output.table_tex:q}"
    " --json {output.table_json:q} >> {log:q} 2>&1",
    "figure": "python {resources.scripts:q}/figure.py --spec {params.spec:q} --code {params.code}"
    " --metrics {input.metrics:q} --clients {input.clients:q} {resources.published}"
    " {resources.manifests}"
    " --pdf {output.figure_pdf:q} --png {output.figure_png:q} --svg {output.figure_svg:q}"
    " --json {output.figure_json:q} >> {log:q} 2>&1",
    "report": "python {resources.scripts:q}/report.py --spec {params.spec:q} --code {params.code}"
    " --results {resources.results:q} --figures {resources.figures:q}"
    " --md {output.report:q} --html {output.report_html:q} >> {log:q} 2>&1",
}
<<<<<<< HEAD
# Options that a job needs only because it was planned earlier and runs beside other jobs.
PLANNED = (" --code {params.code}", " --gpus {resources.gpu}", " >> {log:q} 2>&1")
FOLDERS = ("checkpoints", "tuning", "runs", "results", "figures")
ONLY_OUTPUT = {"download": "receipt", "evaluate": "evaluation"}
=======
>>>>>>> 4f79a98 (Drop features that nobody reads: printed commands, shared methods, idle remarks)


def option(name: str, *values: str) -> str:
    """The words --name value for a command line; "" without a value."""
    return shlex.join([f"--{name}", *values]) if any(values) else ""


<<<<<<< HEAD
def script(plan: Plan) -> Iterator[str]:
    """Lines of a Bash script that runs every job of the plan, one after the other."""
    yield "#!/usr/bin/env bash"
    yield "# Every job of this configuration, in order. Run it in the root of the repository."
    yield "set -euo pipefail"
    yield from (command(plan, stage, **wildcards) for stage, wildcards in plan.jobs())


=======
>>>>>>> 4f79a98 (Drop features that nobody reads: printed commands, shared methods, idle remarks)
def job(stage: str = "", name: str = "") -> tuple[str, dict]:
    """The (stage, wildcards) of a job by name: "train", "pfedmm/digits/fedem/seed0".

    Raises:
      ConfigError: for an unknown stage, or a name of none of its jobs.
    """
    if stage not in STAGES:
        raise ConfigError(f"no stage {stage!r}; there are {', '.join(STAGES)}")
    parts = name.split("/") if name else []
    names = STAGES[stage]
    if stage == "partition" and len(parts) == len(names) + 1:
        names = (*names, "seed")
    wildcards = dict(zip(names, parts, strict=False))
    if "seed" in wildcards:
        wildcards["seed"] = wildcards["seed"].removeprefix("seed")
    if len(parts) != len(names) or not wildcards.get("seed", "0").isdecimal():
        pattern = "/".join(f"seed{w.upper()}" if w == "seed" else w.upper() for w in names)
        raise ConfigError(f"a {stage} job is named {pattern or 'by nothing'}, got {name!r}")
    if stage == "partition" and "seed" in wildcards:
        wildcards["replicate"] = f"/seed{wildcards.pop('seed')}"
    return stage, wildcards


<<<<<<< HEAD
def command(plan: Plan, stage: str, **wildcards: object) -> str:
    """Shell command of one job; it may read files of `write_specifications`.

    Raises:
      ConfigError: for a stage or job that the plan does not have.
    """
    spec = plan.given(stage, **wildcards)
    files = _Files(plan, stage, wildcards)
    optional = _optional(plan, stage, wildcards)
    text = COMMANDS[stage]
    absent = [f" {{resources.{name}}}" for name, words in optional.items() if not words]
    for words in (*PLANNED, *absent):
        text = text.replace(words, "")
    resources = {name: _Word(plan.config[name]) for name in ("raw", "device", "executor")}
    resources["scripts"] = _Word("scripts")
    resources |= {name: getattr(files, name) for name in FOLDERS}
    return text.format(
        wildcards=SimpleNamespace(**wildcards),
        params=SimpleNamespace(spec=_Word(spec)),
        input=files,
        output=files,
        resources=SimpleNamespace(**resources, **optional),
    )


=======
>>>>>>> 4f79a98 (Drop features that nobody reads: printed commands, shared methods, idle remarks)
def write_specifications(plan: Plan, root: Path = Path()) -> None:
    """Write the files with the specifications of all jobs of `LONG` stages."""
    for stage, wildcards in plan.jobs():
        if stage in LONG:
            path = root / plan.given(stage, **wildcards).removeprefix("@")
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, plan.spec(stage, **wildcards))
<<<<<<< HEAD


def _optional(plan: Plan, stage: str, wildcards: dict) -> dict[str, str]:
    """Options that only some jobs of the stage have, as text."""
    found = {"mirror": [plan.config["mirror"] or ""]}
    if stage in ("tune", "train", "evaluate"):
        run = {name: value for name, value in wildcards.items() if name != "seed"}
        found |= {"weights": plan.weights(**run), "choice": plan.choice(**run)}
        found["settled"] = plan.settled_files(**wildcards) if stage == "evaluate" else []
    elif stage in ("table", "figure"):
        found["published"] = plan.published(stage, wildcards["paper"], wildcards[stage])
        found["manifests"] = plan.shown_data(**wildcards) if stage == "figure" else []
    return {name: option(name, *values) for name, values in found.items()}


class _Word(str):
    """A text that ":q" quotes for a shell, as Snakemake does."""

    def __format__(self, specification: str) -> str:
        return shlex.quote(self) if specification == "q" else str(self)


class _Files:
    """The files of a job by their names in `PATHS`; formatted, it is the job's only output."""

    def __init__(self, plan: Plan, stage: str, wildcards: dict):
        self._plan, self._stage, self._wildcards = plan, stage, wildcards

    def __getattr__(self, name: str) -> _Word:
        return _Word(self._plan.path(name, **self._wildcards))

    def __format__(self, specification: str) -> str:
        return format(getattr(self, ONLY_OUTPUT[self._stage]), specification)
=======
>>>>>>> 4f79a98 (Drop features that nobody reads: printed commands, shared methods, idle remarks)
