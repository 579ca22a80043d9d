"""What `snakemake --dry-run` prints, read by the tests."""

import re
from pathlib import Path
from typing import NamedTuple

import workflow

from fedlib.workflow.layout import STAGES
from fedlib.workflow.plan import Plan

_RULE = re.compile(r"^(?:local)?rule (\w+):\n((?:    \w+: .*\n)*)", re.MULTILINE)
_FIELD = re.compile(r"    (\w+): (.*)\n")


class Job(NamedTuple):
    """A job that Snakemake would run."""

    rule: str
    wildcards: dict[str, str]


def planned(folder: Path, *arguments: str) -> list[Job]:
    """The jobs that Snakemake would run in a folder, with the configuration of the tests."""
    code, output = workflow.dry_run(folder, workflow.smoke(*arguments))
    assert code == 0, output
    jobs = parse(output)
    assert jobs or "Nothing to be done" in output, output
    return jobs


def names(plan: Plan, *stages: str, **wildcards: object) -> set[str]:
    """The plan's jobs of these stages that have these wildcards: {"table pfedmm/main", ...}."""
    return {
        _name(stage, job)
        for stage, job in plan.jobs()
        if stage in stages and all(job.get(key, value) == value for key, value in wildcards.items())
    }


def would_run(folder: Path, *arguments: str) -> set[str]:
    """What a dry run says that would run, by the names that `names` gives."""
    return {_name(job.rule, job.wildcards) for job in planned(folder, *arguments)}


def _name(rule: str, wildcards: dict) -> str:
    job = "/".join(str(wildcards[key]) for key in STAGES[rule])
    return f"{rule} {job}{wildcards.get('replicate', '')}"


def parse(output: str) -> list[Job]:
    """The jobs in the text that a dry run prints, target rules without output left out."""
    found = []
    for rule, lines in _RULE.findall(f"{output}\n"):
        fields = dict(_FIELD.findall(lines))
        if "output" in fields:
            pairs = (pair.split("=", 1) for pair in fields.get("wildcards", "").split(", "))
            found.append(Job(rule, {pair[0]: pair[1] for pair in pairs if len(pair) == 2}))
    return found
