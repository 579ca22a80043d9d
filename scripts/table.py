#!/usr/bin/env python3
"""Build one table of a paper from its metrics: csv, Markdown, LaTeX and JSON."""

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib import seals
from fedlib.report.tables import render
from fedlib.report.tables.sheets import TableInputs
from fedlib.spec.exhibits import KINDS, one_of
from fedlib.workflow import command, provenance


def main() -> None:
    """Parse the command line, build, write."""
    args = command.exhibit_parser(__doc__, "csv", "md", "tex", "json").parse_args()

    spec = command.json_argument(args.spec, "kind", "federations", "runs")
    one_of(KINDS["table"], spec["kind"], "kind")
    roots = ("scripts/table.py", KINDS["table"][spec["kind"]].module_name())
    code = provenance.check_code(args.code, *roots)
    published = next(iter(args.published), None)
    read = seals.contents(args.metrics, args.clients, *args.published)
    sheet = TableInputs.read(spec, args.metrics, args.clients, published).make()
    made = partial(seals.Made, seals.spec_digest(spec), code, read)
    render.write(sheet, args.csv, args.md, args.tex, args.json, made=made)
    provenance.assert_covered(*roots)


if __name__ == "__main__":
    sys.exit(command.run(main))
