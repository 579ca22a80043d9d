#!/usr/bin/env python3
"""Draw one figure of a paper from its metrics: PDF and PNG."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib import figures
from fedlib.exhibits import frames, published
from fedlib.figures import style
from fedlib.workflow import command, packing, provenance


def main() -> None:
    """Parse the command line, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="exhibit specification, JSON or @path")
    parser.add_argument("--metrics", type=Path, required=True, help="tidy metrics, .parquet")
    parser.add_argument("--clients", type=Path, required=True, help="clients, .parquet")
    parser.add_argument(
        "--published", type=Path, nargs="?", help="the paper's own numbers, .csv, if it has any"
    )
    for form in ("pdf", "png"):
        parser.add_argument(f"--{form}", type=Path, required=True, help=f"output, .{form}")
    parser.add_argument("--code", help="digest of the code this job was planned with")
    args = parser.parse_args()

    spec = packing.unpacked(command.json_argument(args.spec))
    roots = ("scripts/figure.py", f"fedlib.figures.{spec['kind']}")
    figures.check_params(spec["kind"], spec["params"])
    provenance.check_code(args.code, *roots)
    figure = figures.load(spec["kind"])(
        spec,
        frames.read_parquet(args.metrics),
        frames.read_parquet(args.clients),
        published.read(args.published) if args.published else None,
        **spec["params"],
    )
    style.save(figure, args.pdf, args.png)
    provenance.assert_covered(*roots)


if __name__ == "__main__":
    sys.exit(command.run(main))
