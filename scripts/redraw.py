#!/usr/bin/env python3
"""Draw every table and figure of kept results again, without any run: `make figures-from FROM=...`.

The numbers come from the runs, see `fedlib.report.packs`; the published numbers come from this
checkout. It writes to figures/from/PAPER and leaves docs/results unchanged.
"""

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib.errors import DataError
from fedlib.report import figures, inputs, packs, tables
from fedlib.report.figures import saving
from fedlib.report.tables import render
from fedlib.workflow import command
from fedlib.workflow.layout import PATHS, WILDCARDS
from fedlib.workflow.provenance import ROOT

# What tables and figures raise for a specification that nobody declared.
SENSELESS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def main() -> None:
    """Parse the command line and draw."""
    parser = argparse.ArgumentParser(description=command.described(__doc__))
    parser.add_argument("source", type=Path, help="docs/results/PAPER, or its folder pack")
    parser.add_argument("--out", type=Path, help="folder (default: figures/from/PAPER)")
    args = parser.parse_args()
    inner = args.source / packs.FOLDER
    metrics, clients, exhibits = packs.read(inner if inner.is_dir() else args.source)
    checked = [(exhibit, _checked(exhibit)) for exhibit in exhibits]
    for exhibit, spec in checked:
        folder = args.out or ROOT / "figures/from" / spec["paper"]
        folder.mkdir(parents=True, exist_ok=True)
        printed = ROOT / PATHS["published"].format(paper=spec["paper"])
        given = spec, metrics, clients, printed if exhibit.published else None
        try:
            _draw(exhibit.stage, given, folder / spec["name"])
        except command.MENDABLE:
            raise
        except SENSELESS as error:
            raise DataError(
                f"{exhibit.stage} {spec['name']} cannot be drawn from {args.source} "
                f"({type(error).__name__}: {error}); the pack was changed, or is of another version"
            ) from error
    print(f"{len(exhibits)} tables and figures are in {folder}")


def _checked(exhibit: packs.Packed) -> dict:
    """The specification of an exhibit, whose names name files: a pack may be anybody's.

    Raises:
      DataError: for a name that could leave its folder.
    """
    for entry, wildcard in (("paper", "paper"), ("name", exhibit.stage)):
        value, pattern = exhibit.spec.get(entry), WILDCARDS[wildcard]
        if not re.fullmatch(pattern, str(value)):
            raise DataError(
                f"the {entry} of a pack's {exhibit.stage} must be {pattern}, got {value!r}"
            )
    return exhibit.spec


def _draw(stage: str, given: tuple, path: Path) -> None:
    """The files of one table or figure, `path` with their endings."""
    if stage == "table":
        files = [path.with_name(f"{path.name}.{form}") for form in ("csv", "md", "tex", "json")]
        render.write(inputs.made(tables.load, *given), *files)
    else:
        files = [path.with_name(f"{path.name}.{form}") for form in ("pdf", "png", "svg")]
        saving.save(inputs.made(figures.load, *given), *files)


if __name__ == "__main__":
    sys.exit(command.run(main))
