"""The shell commands of the rules, the names of their jobs, and the files of long specifications.

Commands have Snakemake's placeholders. Settings that must not repeat a job are resources: the place
of raw files, and the way of computing.
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


def option(name: str, *values: str) -> str:
    """The words --name value for a command line; "" without a value."""
    return shlex.join([f"--{name}", *values]) if any(values) else ""


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


def write_specifications(plan: Plan, root: Path = Path()) -> None:
    """Write the files with the specifications of all jobs of `LONG` stages."""
    for stage, wildcards in plan.jobs():
        if stage in LONG:
            path = root / plan.given(stage, **wildcards).removeprefix("@")
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, plan.spec(stage, **wildcards))
