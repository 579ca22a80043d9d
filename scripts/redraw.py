#!/usr/bin/env python3
"""Draw every table and figure of kept results again, without any run: `make figures-from FROM=...`.

Their numbers are those of the runs, see `fedlib.exhibits.packs`; the published ones are those of
this checkout. What comes out is in figures/from/PAPER, and docs/results stays as it is.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib import figures, tables
from fedlib.exhibits import inputs, packs
from fedlib.figures import saving
from fedlib.tables import render
from fedlib.workflow import command, packing
from fedlib.workflow.layout import PATHS
from fedlib.workflow.provenance import ROOT


def main() -> None:
    """Parse the command line and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="docs/results/PAPER, or its folder pack")
    parser.add_argument("--out", type=Path, help="folder (default: figures/from/PAPER)")
    args = parser.parse_args()
    inner = args.source / packs.FOLDER
    metrics, clients, exhibits = packs.read(inner if inner.is_dir() else args.source)
    for exhibit in exhibits:
        spec = packing.unpacked(exhibit.spec)
        folder = args.out or ROOT / "figures/from" / spec["paper"]
        folder.mkdir(parents=True, exist_ok=True)
        printed = ROOT / PATHS["published"].format(paper=spec["paper"])
        given = spec, metrics, clients, printed if exhibit.published else None
        path = folder / spec["name"]
        if exhibit.stage == "table":
            files = [path.with_name(f"{path.name}.{form}") for form in ("csv", "md", "tex", "json")]
            render.write(inputs.made(tables.load(spec["kind"]), *given), *files)
        else:
            files = [path.with_name(f"{path.name}.{form}") for form in ("pdf", "png", "svg")]
            saving.save(inputs.made(figures.load(spec["kind"]), *given), *files)
    print(f"{len(exhibits)} tables and figures are in {folder}")


if __name__ == "__main__":
    sys.exit(command.run(main))
