"""Shared by all rules: the plan, and functions that ask it about a job.

The plan (`fedlib.workflow.plan`) has all jobs of the configuration, with their files and
specifications: path("state") is a pattern of files, ask(path, "state") the file of a job.
"""

import gc
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger
from snakemake.sourcecache import HostingProviderFile


def checkout():
    """Folder of this workflow's files; for a module from a repository, a copy of their commit."""
    rules = workflow.current_basedir
    if not isinstance(rules, HostingProviderFile):
        return Path(str(rules)).parent
    repository = rules.hosted_repo.repo
    commit = repository.commit(rules.ref).hexsha
    folder = workflow.sourcecache.cache_path / "fedlib-moe" / commit
    if not folder.exists():
        part = folder.with_name(f"{commit}.{os.getpid()}")
        repository.clone(part, no_checkout=True).git.checkout(commit)
        part.rename(folder)
    return folder


CHECKOUT = checkout()
sys.path.insert(0, str(CHECKOUT))

from fedlib.run_spec import Tuning
from fedlib.errors import BusyError, ConfigError, DataError
from fedlib.forecast.estimates import NODE_MB, Estimates
from fedlib.locks import hold_folder
from fedlib.workflow.config import DEFAULTS
from fedlib.workflow.layout import STAGES, WILDCARDS, templates
from fedlib.workflow import command, console, freshness, gpu, internals, preflight, warm
from fedlib.workflow.shell import option, write_specifications

# --- This process ---------------------------------------------------------------------------------

# Options that only read the folder, and are allowed while another Snakemake works in it. With
# --report-after-run everything is made, and the report at the end.
READERS = """--report --lint --list-rules --list -l --list-target-rules --lt --list-changes --lc
--list-input-changes --li --list-params-changes --lp --list-untracked --lu --summary -S
--detailed-summary -D --dag --rulegraph --filegraph --d3dag""".split()
words = [word.partition("=")[0] for word in sys.argv]
process = internals.process(workflow)
looks = "--report-after-run" not in words and any(word in READERS for word in words)
reads = process.is_dry or looks
if process.moves_paths:
    raise WorkflowError(
        "prefix: a module of this workflow cannot have one; set tag to tell runs apart"
    )
if process.is_main:
    command.tell_interrupts()
if process.is_main and not reads:
    command.interrupt_once()
    if process.runs_jobs:
        internals.interrupt_by_sigterm(command.interrupt)
    try:
        hold_folder()
    except (BusyError, OSError) as error:
        raise WorkflowError(str(error)) from None
    console.install(logger)

# The graph of jobs is large, and all of it is kept: searching it for garbage would take a tenth of
# the planning time.
gc.set_threshold(100_000, 50, 1000)


# --- The plan -------------------------------------------------------------------------------------

# A module has a configuration of its own, which these values do not reach.
lost = [x for x in DEFAULTS if x in process.given and process.given[x] != config.get(x)]
if process.is_main and lost:
    logger.warning(
        f"{', '.join(lost)}: of the command line, which the module of fedlib does not read; if meant "
        f"for it, give --config 'fedlib={{{lost[0]}: ...}}', with the key that your Snakefile gives it"
    )

try:
    PLAN = freshness.make_plan(config)
    config.update(PLAN.config)
    if budget := PLAN.config["budget"]:
        raise ConfigError(
            f"budget is for make, which chooses cells with it: make reproduce CONFIG=budget={budget}. "
            f"Here, give --configfile {PLAN.path('budget')} or name runs"
        )
    ESTIMATES = Estimates.read(PLAN.path("estimates"))
    # What rule partitions makes besides manifests; a receipt that is there may be outdated.
    NEEDS = [file for file in PLAN.files("receipt") if os.path.exists(file)]
    if process.is_main:
        PLAN = preflight.check(PLAN)
        if not looks:
            found = freshness.check(PLAN)
            NEEDS += freshness.list_needs(PLAN, freshness.list_open_jobs(PLAN, found))
            internals.make_again(*found)
        if not reads:
            write_specifications(PLAN)
except (ConfigError, DataError, OSError) as error:
    raise WorkflowError(str(error)) from None

try:
    gpu.slots(0)  # checks the environment variables that the default profile reads
    # Jobs on a cluster may have a GPU there.
    # With --sdm conda they have a PyTorch of their own.
    if process.is_main and process.runs_jobs and not reads and not process.deploys:
        config["device"] = gpu.choose_device(config["device"])
    # Cores of a training or an evaluation: scripts/train.py and evaluate.py read the same variable.
    WORKERS = command.threads()
except ConfigError as error:
    raise WorkflowError(str(error)) from None

# GPUs that a tuning, a training or an evaluation asks for.
GPUS = 0 if config["device"] == "cpu" else 1

path = PLAN.path


wildcard_constraints:
    **WILDCARDS,


# --- Jobs -----------------------------------------------------------------------------------------

# Jobs run with the Python that runs Snakemake, unless --sdm conda gives them another one.
PYTHON = Path(sys.executable).parent
os.environ.update(PATH=os.pathsep.join([str(PYTHON), os.environ.get("PATH", os.defpath)]))


# Folder of the scripts; relative in the checkout itself, for short commands.
SCRIPTS = "scripts" if CHECKOUT.samefile(Path.cwd()) else f"{CHECKOUT}/scripts"


# Jobs of this process may be forks of a process that has imported their libraries.
CAN_FORK = process.runs_jobs and not process.deploys and warm.is_wanted(config["device"])


onstart:
    internals.drop_default_limit(workflow)
    if CAN_FORK:
        # The python of our scripts alone: other rules of a workflow that uses this one keep theirs.
        ours = f'case "$1" in {shlex.quote(SCRIPTS)}/*.py) {warm.start()} "$@";;'
        prefix = f'python() {{ {ours} *) command python "$@";; esac; }}; '
        internals.add_prefix(shell, prefix)


onsuccess:
    if os.path.exists(path("report_html")):
        logger.info(f"Report: {path('report_html')} (open it in a browser)")


# --- Functions for rules --------------------------------------------------------------------------

TURNS = PLAN.turns()


def turn(stage):
    """Priority function: paper after paper, and later stages of a run before the next run."""
    later = list(STAGES).index(stage)
    return lambda wildcards: later - len(STAGES) * TURNS.index(wildcards.paper)


def ask(answer, *about):
    """Function of a job's wildcards: what the plan says of it, such as ask(path, "state")."""
    return lambda wildcards: answer(*about, **wildcards)


def raw_receipt(wildcards):
    """Receipt of the files of a federation."""
    return path("receipt", dataset=PLAN.download(wildcards.paper, wildcards.federation))


def published_files(stage):
    """Input function: the paper's own numbers, if the table or figure shows them."""

    def files(wildcards):
        found = PLAN.published_files(stage, wildcards.paper, wildcards[stage])
        return [os.path.relpath(CHECKOUT / file) for file in found]

    return files


def optional_input(name):
    """Resource function: the option --name for an input that not every job has."""
    return lambda wildcards, input: option(name, *input.get(name))


def memory(stage=""):
    """Resource function: megabytes for a job that loads a federation; more after a failure.

    Estimated by `make plan`.
    """

    def megabytes(wildcards, attempt):
        more = 0 if process.runs_jobs else NODE_MB
        return (ESTIMATES.megabytes(stage, dict(wildcards.items())) + more) * attempt

    return megabytes


def minutes(stage):
    """Resource function: minutes for a job of a cluster; more after a failure."""
    return lambda wildcards, attempt: ESTIMATES.minutes(stage, dict(wildcards.items())) * attempt


def tuning_minutes(wildcards, attempt):
    """Resource function: minutes for a tuning, which is many trainings in one job."""
    run = PLAN.run(wildcards.paper, wildcards.federation, wildcards.label)
    times = Tuning(**run.tuning).trainings
    return ESTIMATES.minutes("train", dict(wildcards.items()), times) * attempt
