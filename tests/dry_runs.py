"""What `snakemake --dry-run` prints, read by the tests, which trust nobody else's reading of it."""

import re

from fedlib.workflow.dryrun import Job

_HEADER = re.compile(r"(?:local)?rule (\w+):")
_FIELD = re.compile(r"    (\w+): (.*)")


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
            wildcards = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
            found.append(Job(rule, wildcards, fields.get("reason", "")))
        header = _HEADER.fullmatch(line)
        rule, fields = header and header[1], {}
    return found
