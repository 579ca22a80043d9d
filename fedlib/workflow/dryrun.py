"""The jobs that Snakemake would run now, the reasons, and approximate times.

Snakemake decides what to run (`fedlib.workflow.internals`); this module sums it up in a few lines.
Times come from the benchmark files of earlier jobs of the same kind and scale. Times of other jobs
are estimated, see `fedlib.forecast`.
"""

import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedlib.errors import ConfigError
from fedlib.forecast.cells import cells, duration, lines
from fedlib.forecast.estimates import TIMED, Estimates, Timing, run_name
from fedlib.run_spec import trainings_worth
from fedlib.workflow.layout import STAGES
from fedlib.workflow.plan import LONG, Plan

# Snakemake's reasons and their meanings; the first that applies is the cause.
CAUSES = (
    # A plan has no option to force jobs. Snakemake forces jobs with incomplete results, and
    # `fedlib.workflow.stale` marks results of another specification as incomplete.
    ("Forced execution", "was interrupted, or is of something else"),
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
        told = Path(folder) / "jobs"
        told.touch()
        words = [str(told), "--dry-run", "--quiet", "all", "--nocolor", *arguments]
        done = subprocess.run([*command, *words], capture_output=True, text=True)
        lines = told.read_text(encoding="utf-8").splitlines()
    output = done.stdout + done.stderr
    if done.returncode:
        raise ConfigError(f"Snakemake cannot plan this:\n{_complaint(output)}")
    return [Job(*json.loads(line)) for line in lines]


def records(plan: Plan) -> list[Timing]:
    """All records in the benchmark files of the plan's scale, from every folder of that scale."""
    found = []
    for folder in Path("results").glob(f"{plan.scale}*"):
        if folder.name.partition("-")[0] == plan.scale:  # "demo-quick" has the tag "quick"
            for path in sorted((folder / "benchmarks").rglob("*.jsonl")):
                found += _read_benchmark(path)
    return found


def by_kind(known: Iterable[Timing]) -> dict[tuple, list[Timing]]:
    """Records by key; jobs with one key take about equally long for equally many rounds."""
    kinds: dict[tuple, list[Timing]] = {}
    for record in known:
        kinds.setdefault(record.key, []).append(record)
    return kinds


def estimate(
    job: Job,
    plan: Plan,
    known: Mapping[tuple, Sequence[Timing]],
    estimates: Estimates | None = None,
) -> float | None:
    """Estimated seconds of a job; None if unknown.

    It is the median over earlier jobs of the same stage, federation and method: jobs with equally
    many rounds, or else all jobs, scaled by rounds. Without any earlier job it is the forecast.
    """
    spec = {} if job.rule in LONG else json.loads(plan.spec(job.rule, **job.wildcards))
    key, rounds = _key(job.rule, job.wildcards, spec), _rounds(job.rule, spec)
    like = known.get(key, ())
    exact = [record.seconds for record in like if record.rounds == rounds]
    scaled = [record.seconds / record.rounds * rounds for record in like]
    if like or estimates is None:
        return statistics.median(exact or scaled) if like else None
    if job.rule == "tune":
        return _tuning(spec, *(estimates.seconds(s, job.wildcards, spec["method"]) for s in TIMED))
    return estimates.seconds(job.rule, job.wildcards, spec.get("method"))


def _tuning(spec: dict, train: float | None, evaluate: float | None) -> float | None:
    """Seconds of a tuning; its trials may be chosen by a protocol they are prepared for."""
    if train is None or evaluate is None:
        return None
    trials, by = spec["tuning"]["trials"], spec["tuning"].get("protocol", "default")
    return train * trainings_worth(spec["tuning"]) + evaluate * trials * (by != "default")


def summary(
    plan: Plan,
    planned: Sequence[Job],
    known: Sequence[Timing],
    estimates: Estimates | None = None,
) -> Iterator[str]:
    """Lines for a reader: number of jobs of each rule, causes, and estimated times."""
    if not planned:
        yield f"results/{plan.folder} is up to date: nothing to do"
        return
    yield f"results/{plan.folder}: {len(planned)} jobs to run"
    estimates = estimates and estimates.corrected(plan.runs, known)
    kinds = by_kind(known)
    times = [estimate(job, plan, kinds, estimates) for job in planned]
    for rule in STAGES:
        mine = [place for place, job in enumerate(planned) if job.rule == rule]
        if not mine:
            continue
        causes = Counter(planned[place].cause for place in mine).most_common()
        why = ", ".join(c if n == len(mine) else f"{n} {c}" for c, n in causes)
        yield f"  {rule:<10}{len(mine):>6}  {_duration([times[p] for p in mine]):<14} {why}"
    yield ""
    if estimates and estimates.costs:
        by_run: dict[tuple[str, str], list[float]] = {}
        for job, seconds in zip(planned, times, strict=True):
            if job.rule in (*TIMED, "tune") and seconds is not None:
                by_run.setdefault((run_name(job.wildcards), job.rule), []).append(seconds)
        every = cells(plan.papers, by_run, estimates)
        yield from lines(plan.papers, every, estimates, plan.path("estimates"))
    else:
        yield from _together(times)


def _together(times: Sequence[float | None]) -> Iterator[str]:
    """The time of earlier jobs like these, for plans without estimates."""
    total, unknown = sum(filter(None, times)), times.count(None)
    yield (
        f"Recorded jobs like these took {duration(total)} together; "
        "as many run at a time as there are cores, or slots on GPUs."
        if total
        else "No job like these has been timed at this scale yet."
    )
    if total and unknown:
        yield f"Not counted: {unknown} jobs unlike any that has been timed at this scale."


def _key(stage: str, wildcards: dict, spec: dict) -> tuple:
    """The key of jobs that take about equally long for equally many rounds."""
    names = [name for name in STAGES[stage] if name not in ("label", "seed")]
    return (stage, *(wildcards[name] for name in names), spec.get("method"))


def _rounds(stage: str, spec: dict) -> int:
    if stage == "tune":
        return round(spec["rounds"] * trainings_worth(spec["tuning"]))
    return spec["rounds"] if stage == "train" else 1


def _read_benchmark(path: Path) -> list[Timing]:
    """The records in one file, without damaged ones.

    Records of runs without the profile are left out, too, because they do not name their jobs.
    """
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
            stage, given = entry["rule_name"], entry["params"]["spec"]
            spec = {} if given.startswith("@") else json.loads(given)
            record = Timing(
                _key(stage, entry["wildcards"], spec), _rounds(stage, spec), float(entry["s"])
            )
            if record.rounds > 0 and 0 <= record.seconds < math.inf:
                found.append(record)
        except (AttributeError, KeyError, TypeError, ValueError):
            continue
    return found


def _changed_param(reason: str) -> str:
    """Which of a job's two params changed; a code digest is 16 hexadecimal digits."""
    values = re.findall(r"'((?:[^'\\]|\\.)*)'", reason.partition("Params have changed")[2])
    digests = [_DIGEST.fullmatch(value) is not None for value in values]
    if digests and all(digests):
        return "code changed"
    if digests and not any(digests):
        return "specification changed"
    return "specification and code changed"


def _duration(seconds: Sequence[float | None]) -> str:
    known = [value for value in seconds if value is not None]
    if not known:
        return "time unknown"
    return duration(sum(known)) + (" + unknown" if len(known) < len(seconds) else "")


def _complaint(output: str) -> str:
    """The end of Snakemake's output, from the error on."""
    lines = output.strip().splitlines()
    starts = [i for i, line in enumerate(lines) if re.match(r"\w*(Error|Exception)\b", line)]
    return "\n".join(lines[starts[0] if starts else -10 :])
