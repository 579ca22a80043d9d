"""The jobs that Snakemake would run now, the reasons, and approximate times.

Snakemake decides what to run (`fedlib.workflow.internals`); this module sums it up in a few lines.
Times are estimates, see `fedlib.forecast`.
"""

import json
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedlib.errors import ConfigError
from fedlib.forecast.estimates import TIMED, Estimates
from fedlib.workflow.cells import cells, duration, lines, seconds
from fedlib.workflow.layout import STAGES
from fedlib.workflow.plan import Plan

# Snakemake's reasons and their meanings; the first that applies is the cause.
CAUSES = (
    # Besides the jobs that its options force, Snakemake forces those with incomplete results, and
    # `fedlib.workflow.freshness` marks results of another specification as incomplete.
    ("Forced execution", "forced, was interrupted, or is of something else"),
    ("Missing output files", "not there yet"),
    ("Params have changed", "specification or code changed"),
    ("Code has changed", "rule changed"),
    ("Set of input files has changed", "other inputs"),
    ("Updated input files", "input changed"),
    ("Input files updated by another job", "follows from the above"),
)
_DIGEST = re.compile(r"[0-9a-f]{16}")


class Job(NamedTuple):
    """A job that Snakemake would run.

    Attributes:
      rule: its name.
      wildcards: {"paper": "pfedmm", ...}, all text.
      reason: Snakemake's own words.
    """

    rule: str
    wildcards: dict[str, str]
    reason: str

    @property
    def cause(self) -> str:
        """The reason in a few words."""
        for start, meaning in CAUSES:
            if start in self.reason:
                return _changed_param(self.reason) if start.startswith("Params") else meaning
        return self.reason


def jobs(arguments: Sequence[str] = ()) -> list[Job]:
    """Jobs that `snakemake ARGUMENTS` would run.

    Jobs without an output, which only request other jobs, are left out.

    Raises:
      ConfigError: if Snakemake refuses, with its message.
    """
    command = [sys.executable, "-m", "fedlib.workflow.internals"]
    with tempfile.TemporaryDirectory() as folder:
        jobs_file = Path(folder) / "jobs"
        jobs_file.touch()
        words = [str(jobs_file), "--dry-run", "--quiet", "all", "--nocolor", *arguments]
        done = subprocess.run([*command, *words], capture_output=True, text=True)
        lines = jobs_file.read_text(encoding="utf-8").splitlines()
    output = done.stdout + done.stderr
    if done.returncode:
        raise ConfigError(f"Snakemake cannot plan this:\n{_complaint(output)}")
    return [Job(*json.loads(line)) for line in lines]


def summary(plan: Plan, planned: Sequence[Job], estimates: Estimates) -> Iterator[str]:
    """Lines for a reader: number of jobs of each rule, causes, and estimated times."""
    if not planned:
        yield f"results/{plan.folder} is up to date: nothing to do"
        return
    yield f"results/{plan.folder}: {len(planned)} jobs to run"
    of_runs = [(job.rule, job.wildcards) for job in planned if job.rule in (*TIMED, "tune")]
    for rule in STAGES:
        mine = [job for job in planned if job.rule == rule]
        if not mine:
            continue
        causes = Counter(job.cause for job in mine).most_common()
        why = ", ".join(c if n == len(mine) else f"{n} {c}" for c, n in causes)
        took = [seconds(plan, rule, job, estimates) for stage, job in of_runs if stage == rule]
        yield f"  {rule:<10}{len(mine):>6}  {_duration(took):<14} {why}"
    if of_runs:
        yield ""
        every = cells(plan, of_runs, estimates)
        yield from lines(plan.papers, every, estimates, plan.path("estimates"))


def _changed_param(reason: str) -> str:
    """Which of a job's two params changed; a code digest is 16 hexadecimal digits."""
    values = re.findall(r"'((?:[^'\\]|\\.)*)'", reason.partition("Params have changed")[2])
    digests = [_DIGEST.fullmatch(value) is not None for value in values]
    if digests and all(digests):
        return "code changed"
    if digests and not any(digests):
        return "specification changed"
    return "specification and code changed"


def _duration(seconds: Sequence[float]) -> str:
    known = [value for value in seconds if value < math.inf]
    if not known:
        return "time unknown" if seconds else ""
    return duration(sum(known)) + (" + unknown" if len(known) < len(seconds) else "")


def _complaint(output: str) -> str:
    """The end of Snakemake's output, from the error on."""
    lines = output.strip().splitlines()
    starts = [i for i, line in enumerate(lines) if re.match(r"\w*(Error|Exception)\b", line)]
    return "\n".join(lines[starts[0] if starts else -10 :])
