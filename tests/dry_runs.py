"""What `snakemake --dry-run` prints, read by the tests."""

import re
from typing import NamedTuple

_HEADER = re.compile(r"(?:local)?rule (\w+):")
_FIELD = re.compile(r"    (\w+): (.*)")


class Job(NamedTuple):
    """A job that Snakemake would run."""

    rule: str
    wildcards: dict[str, str]


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
