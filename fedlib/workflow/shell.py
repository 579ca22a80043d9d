"""The jobs of a plan as shell commands, for a machine without Snakemake.

The commands are those of the rules, without the parts that only Snakemake needs (log, planned code
digest). A test compares the two.
"""

import shlex
from collections.abc import Iterator

from fedlib.errors import ConfigError
from fedlib.workflow.layout import PATHS, STAGES
from fedlib.workflow.plan import Plan

_COMPUTE = "--device {device} --executor {executor}"
COMMANDS = {
    "download": "{dataset} --spec {spec} --raw {raw} --receipt {receipt}{mirror}",
    "partition": "--spec {spec} --raw {raw} --shards {shards} --manifest {manifest}",
    "train": "--spec {spec} --shards {shards} --manifest {manifest}{weights}"
    " --state {state} --history {history} --checkpoints {checkpoints} " + _COMPUTE,
    "evaluate": "--spec {spec} --shards {shards} --manifest {manifest}{weights}{settled}"
    " --state {state} --history {history} --checkpoints {checkpoints} --out {evaluation} "
    + _COMPUTE,
    "events": "--spec {spec} --history {history} --evaluation {evaluation} --out {events}",
    "metrics": "--spec @/dev/stdin --runs {runs} --parquet {metrics} --csv {metrics_csv}"
    " --clients {clients} <<< {spec}",
    "table": "--spec @/dev/stdin --metrics {metrics} --clients {clients}{published}"
    " --csv {table_csv} --md {table_md} --tex {table_tex} --json {table_json} <<< {spec}",
    "figure": "--spec @/dev/stdin --metrics {metrics} --clients {clients}{published}"
    " --pdf {figure_pdf} --png {figure_png} --svg {figure_svg} --json {figure_json} <<< {spec}",
    "report": "--spec @/dev/stdin --results {results} --figures {figures} --md {report}"
    " --html {report_html} <<< {spec}",
}


def script(plan: Plan) -> Iterator[str]:
    """Lines of a Bash script that does every job of the plan, one after the other."""
    yield "#!/usr/bin/env bash"
    yield "# Every job of this configuration, in order. Run it in the root of the repository."
    yield "set -euo pipefail"
    yield from (command(plan, stage, **wildcards) for stage, wildcards in plan.jobs())


def job(stage: str = "", name: str = "") -> tuple[str, dict]:
    """The (stage, wildcards) of a job by name: "train", "pfedmm/digits/fedem/seed0".

    Raises:
      ConfigError: for a stage that does not exist or a name that is not one of its jobs'.
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


def command(plan: Plan, stage: str, **wildcards: object) -> str:
    """Shell command of one job.

    Raises:
      ConfigError: for a stage or job that the plan does not have.
    """
    values = {name: shlex.quote(plan.path(name, **wildcards)) for name in PATHS}
    values |= {name: str(value) for name, value in wildcards.items()}
    values |= {name: plan.config[name] for name in ("device", "executor")}
    values["raw"] = shlex.quote(plan.config["raw"])
    values["spec"] = shlex.quote(plan.spec(stage, **wildcards))
    optional = {"mirror": [plan.config["mirror"]] if plan.config["mirror"] else []}
    if stage in ("train", "evaluate"):
        run = {name: value for name, value in wildcards.items() if name != "seed"}
        optional["weights"] = plan.weights(**run)
        optional["settled"] = plan.settled_files(**wildcards)
    elif stage in ("table", "figure"):
        optional["published"] = plan.published(stage, wildcards["paper"], wildcards[stage])
    for name, files in optional.items():
        values[name] = f" --{name} {shlex.join(files)}" if files else ""
    return f"python scripts/{stage}.py {COMMANDS[stage].format(**values)}"
