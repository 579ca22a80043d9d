"""What this project uses of Snakemake beyond its documentation: every such name, and what for.

Any version of Snakemake may rename them, so CI runs the workflow with the oldest and the newest.
(`rules/common.smk` has one more, to find this file.) Snakemake is imported where it is used,
because plans do without it.

    python -m fedlib.workflow.internals FILE --dry-run [OPTIONS OF SNAKEMAKE]

is a dry run without its output. It writes a line of JSON per job to FILE: rule, wildcards, and the
reason in Snakemake's words. It builds the same graph of jobs as a dry run, but computes no
resources and prints no commands. For ten thousand jobs this saves two thirds of the time.
"""

import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Snakemake's name for the handler of its log that writes pages to a terminal.
STREAM_HANDLER = "DefaultStreamHandler"
# Begin the lines that it writes before it reads the Snakefile.
FIRST_LINES = ("Using workflow specific profile ", "Config file ")
# Begins its message that names its log.
NAMES_LOG = "Complete log(s): "
# In its message that a command failed, which the log of the job explains better.
COMMAND_FAILED = "CalledProcessError in file"


class Process(NamedTuple):
    """A process of Snakemake that reads the Snakefile.

    Attributes:
      is_main: plans and starts jobs; False for one that does a single job.
      is_dry: it is a dry run.
      runs_jobs: jobs run on this machine, as its children.
      deploys: jobs run in environments of conda, or in containers.
      cores: for all jobs together, if they run here.
      moves_paths: a module has `prefix` or `replace_prefix`.
    """

    is_main: bool
    is_dry: bool
    runs_jobs: bool
    deploys: bool
    cores: int | None
    moves_paths: bool


def process(workflow: Any) -> Process:
    """What the Snakefile's `workflow` says about this process."""
    paths = workflow.modifier.path_modifier
    return Process(
        is_main=workflow.is_main_process,
        is_dry=workflow.output_settings.dryrun,
        runs_jobs=workflow.local_exec,
        deploys=bool(workflow.deployment_settings.deployment_method),
        cores=workflow.resource_settings.cores if workflow.local_exec else None,
        moves_paths=bool(paths.prefix or paths.modifies_prefixes),
    )


def make_again(wrong: set[str], right: set[str]) -> None:
    """Let Snakemake take files for incomplete, which it makes again if it needs them.

    Args:
      right: files that are what they should be, whatever Snakemake has noted of params and inputs.
    """
    from snakemake.persistence import PersistenceBase

    incomplete = PersistenceBase.incomplete

    async def with_wrong(self, job) -> list:
        found = await incomplete(self, job)
        more = [file for file in job.output if file in wrong and file not in found]
        if more and self.has_metadata(job) and self.params_changed(job):
            return found  # Snakemake sees it, and can say why
        return [*found, *more]

    def without_right(changed: Callable) -> Callable:
        def of(self, job, file=None) -> Any:
            is_right = right.issuperset(job.output if file is None else [file])
            return () if is_right else changed(self, job, file)

        return of

    PersistenceBase.incomplete = with_wrong
    for name in ("params_changed", "input_changed"):
        setattr(PersistenceBase, name, without_right(getattr(PersistenceBase, name)))


def look_again_once() -> None:
    """Let one look through the ready jobs follow another after a second, and not one after each.

    Snakemake looks when a job has ended, and a second after every look, as its limit of jobs in a
    second may be over by then. So each job that ends adds a look a second to all that follows.
    """
    from snakemake.workflow import JobScheduler

    schedule = getattr(JobScheduler, "_schedule_reevalutation", None)
    due = 0.0

    def unless_due(self, delay: float) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + delay
            schedule(self, delay)

    if schedule is not None:  # no version must have it: only time depends on it
        JobScheduler._schedule_reevalutation = unless_due


def run() -> None:
    """Be Snakemake, with the arguments of the command line."""
    from snakemake.cli import main

    main()


def write_needed(file: Path, arguments: Sequence[str]) -> None:
    """Be Snakemake, with a scheduler that writes jobs to a file where its own would print them."""
    from snakemake import cli, workflow  # in this order: they import each other

    class Teller:
        def __init__(self, planned: workflow.Workflow, *_):
            self._dag = planned.dag

        def schedule(self) -> bool:
            """Write all jobs that have an output and are needed; True, as nothing failed."""
            jobs = [job for job in self._dag.needrun_jobs() if job.output]
            lines = [
                json.dumps([job.rule.name, job.wildcards_dict, str(self._dag.reason(job))])
                for job in jobs
            ]
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            return True

    if not hasattr(workflow, "JobScheduler"):
        raise RuntimeError("this Snakemake has its scheduler elsewhere")
    workflow.JobScheduler = Teller
    cli.main(arguments)


if __name__ == "__main__":
    gc.disable()  # searching the graph of jobs for garbage takes a tenth of the time
    write_needed(Path(sys.argv[1]), sys.argv[2:])
