#!/usr/bin/env python3
"""Draw one figure of a paper from its metrics: PDF, PNG, SVG, and JSON with their digests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib import seals
from fedlib.report.figures import FigureInputs, numbers, saving
from fedlib.report.pictures import vouch
from fedlib.spec.exhibits import KINDS, one_of
from fedlib.workflow import command, provenance


def main() -> None:
    """Parse the command line, draw, write."""
    args = command.exhibit_parser(__doc__, "pdf", "png", "svg", "json").parse_args()

    spec = command.json_argument(args.spec, "kind", "federations", "runs")
    one_of(KINDS["figure"], spec["kind"], "kind")
    roots = ("scripts/figure.py", KINDS["figure"][spec["kind"]].module_name())
    code = provenance.check_code(args.code, *roots)
    published = next(iter(args.published), None)
    read = seals.contents(args.metrics, args.clients, *args.published)
    figure = FigureInputs.read(spec, args.metrics, args.clients, published).make()
    pictures = [args.pdf, args.png, args.svg]
    saving.save(figure, *pictures)
    vouch(args.json, pictures, spec, code, read, numbers.of(figure))
    provenance.assert_covered(*roots)


if __name__ == "__main__":
    sys.exit(command.run(main))
