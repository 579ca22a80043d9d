"""What `snakemake --dry-run` prints, read by the tests."""

import re
from pathlib import Path
from typing import NamedTuple

import workflow

_HEADER = re.compile(r"(?:local)?rule (\w+):")
_FIELD = re.compile(r"    (\w+): (.*)")


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


def parse(output: str) -> list[Job]:
    """The jobs in the text that a dry run prints, target rules without output left out."""
    found, rule, fields = [], None, {}
    for line in [*output.splitlines(), ""]:
        field = _FIELD.fullmatch(line)
        if field:
            fields[field[1]] = field[2]
            continue
        if rule and "output" in fields:
            pairs = (pair.split("=", 1) for pair in fields.get("wildcards", "").split(", "))
            found.append(Job(rule, {pair[0]: pair[1] for pair in pairs if len(pair) == 2}))
        header = _HEADER.fullmatch(line)
        rule, fields = header and header[1], {}
    return found
