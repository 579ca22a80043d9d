#!/usr/bin/env python3
"""Compare two folders of results: `make compare A=demo B=demo-slow`.

Prints what differs in specification, code and numbers. With words, prints only the numbers whose
rows contain all of them. results/compare-A-B.csv gets all numbers, equal ones included.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib.errors import ConfigError
from fedlib.files import write_text
from fedlib.report.pages import compared
from fedlib.report.tables import render
from fedlib.workflow import command
from fedlib.workflow.layout import PATHS
from fedlib.workflow.provenance import ROOT


def main() -> None:
    """Parse the command line, compare, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", help="a folder of results/, such as demo or demo-slow")
    parser.add_argument("b", help="another one")
    parser.add_argument(
        "words", nargs="*", help="show only rows with these words, such as fedem loss"
    )
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="folder with results/ (default: this checkout)"
    )
    args = parser.parse_args()
    names = [name.removeprefix("results/").rstrip("/") for name in (args.a, args.b)]
    if names[0] == names[1]:
        raise ConfigError(f"A and B must be two folders of results, got {names[0]!r} twice")
    first, second = (compared.read(args.root, name, PATHS) for name in names)
    sheet = compared.sheet(first, second, args.words)
    print(render.to_markdown(sheet))
    csv = Path("results") / f"{sheet.label}.csv"
    write_text(args.root / csv, render.to_csv(sheet))
    print(f"All numbers: {csv}")


if __name__ == "__main__":
    sys.exit(command.run(main))
