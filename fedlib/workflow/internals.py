"""Every undocumented name of Snakemake that this project uses, and its purpose.

Any version of Snakemake may rename them, so CI runs the workflow with the oldest and the newest.
(`rules/common.smk` has those that find this file.) Functions import Snakemake themselves, because
plans do not need it.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

# Snakemake's name for its log handler that writes to a terminal.
STREAM_HANDLER = "DefaultStreamHandler"
# Beginnings of the lines that it writes before it reads the Snakefile.
FIRST_LINES = ("Using workflow specific profile ", "Config file ")
# Beginning of its message that names its log.
NAMES_LOG = "Complete log(s): "
# Its default of --max-jobs-per-timespan: number of jobs, and seconds.
DEFAULT_LIMIT = (100, 1)
# Part of its message that a command failed; the job's log explains the failure better.
COMMAND_FAILED = "CalledProcessError in file"


class Process(NamedTuple):
    """A process of Snakemake that reads the Snakefile.

    Attributes:
      is_main: whether it plans and starts jobs; False if it does a single job.
      is_dry: whether it is a dry run.
      runs_jobs: whether jobs run on this machine, as its children.
      deploys: whether jobs run in conda environments or containers.
      moves_paths: whether a module has `prefix` or `replace_prefix`.
      given: configuration of the command line, from --config and --configfile.
    """

    is_main: bool
    is_dry: bool
    runs_jobs: bool
    deploys: bool
    moves_paths: bool
    given: Mapping


def process(workflow: Any) -> Process:
    """Properties of this process, from the Snakefile's `workflow`."""
    paths = workflow.modifier.path_modifier
    return Process(
        is_main=workflow.is_main_process,
        is_dry=workflow.output_settings.dryrun,
        runs_jobs=workflow.local_exec,
        deploys=bool(workflow.deployment_settings.deployment_method),
        moves_paths=bool(paths.prefix or paths.modifies_prefixes),
        given=workflow.config_settings.overwrite_config,
    )


def add_prefix(shell: Any, prefix: str) -> None:
    """Put `prefix` before all commands, and before the prefix that another workflow has set.

    Args:
      shell: Snakemake's.
    """
    theirs = shell._process_prefix
    both = prefix + ("set -euo pipefail; " if theirs is None else theirs)
    shell.prefix(both.replace("{", "{{").replace("}", "}}"))  # it is formatted like a command


def make_again(outdated: Collection[str], current: set[str]) -> None:
    """Let Snakemake treat `outdated` files as incomplete, so that it makes needed ones again.

    Args:
      current: files that are up to date, whatever Snakemake has recorded of params, inputs, rules
        and interrupted jobs: a job may have ended, or its result was copied since.
    """
    from snakemake.persistence import PersistenceBase

    incomplete = PersistenceBase.incomplete

    async def with_outdated(self, job) -> list:
        found = [file for file in await incomplete(self, job) if file not in current]
        return [*found, *(file for file in job.output if file in outdated and file not in found)]

    def without_current(changed: Callable) -> Callable:
        def of(self, job, file=None) -> Any:
            is_same = current.issuperset(job.output if file is None else [file])
            return () if is_same else changed(self, job, file)

        return of

    PersistenceBase.incomplete = with_outdated
    for name in ("params_changed", "input_changed", "code_changed"):
        setattr(PersistenceBase, name, without_current(getattr(PersistenceBase, name)))


def drop_default_limit(workflow: Any) -> None:
    """Let Snakemake start any number of jobs in a second, unless the user gave it a limit.

    With a limit, each ended job adds one look per second through the ready jobs, for the rest of
    the workflow.
    """
    limit = workflow.scheduling_settings.max_jobs_per_timespan
    if limit and (limit.max_jobs, limit.timespan) == DEFAULT_LIMIT:
        workflow.scheduler.job_rate_limiter = None


def interrupt_by_sigterm(handler: Callable) -> None:
    """Let SIGTERM stop a workflow of this machine as Ctrl-C does, by a handler that interrupts it.

    Snakemake's own handler waits for a lock that the thread it interrupts may hold, and counts on
    hearing of every job's end, so a workflow could hang for ever.
    """
    from snakemake.scheduling.job_scheduler import JobScheduler

    JobScheduler.exit_gracefully = handler


def run() -> None:
    """Run Snakemake with the arguments of the command line."""
    from snakemake.cli import main

    main()
