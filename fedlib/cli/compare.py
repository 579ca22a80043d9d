"""Compare two folders of results: print the numbers that differ.

results/compare-A-B.csv gets all numbers, equal ones included.
"""

import argparse
from pathlib import Path

from fedlib.errors import ConfigError
from fedlib.files import write_text
from fedlib.report.pages import compared
from fedlib.report.tables import render

RESULTS = Path("results")


def main(args: argparse.Namespace) -> None:
    """Compare, print, write."""
    names = [name.removeprefix("results/").rstrip("/") for name in args.folders]
    if names[0] == names[1]:
        raise ConfigError(f"A and B must be two folders of results, got {names[0]!r} twice")
    first, second = (compared.read(RESULTS, name) for name in names)
    sheet = compared.sheet(first, second, args.words)
    print(render.to_markdown(sheet))
    csv = RESULTS / f"{sheet.label}.csv"
    write_text(csv, render.to_csv(sheet))
    print(f"All numbers: {csv}")
