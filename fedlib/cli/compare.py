"""Compare two folders of results: print what differs in specification, code and numbers.

results/compare-A-B.csv gets all numbers, equal ones included.
"""

import argparse
from pathlib import Path

from fedlib.errors import ConfigError
from fedlib.files import write_text
from fedlib.report.pages import compared, folders
from fedlib.report.tables import render
from fedlib.workflow.layout import PATHS


def main(args: argparse.Namespace) -> None:
    """Compare, print, write."""
    names = [name.removeprefix("results/").rstrip("/") for name in args.folders]
    if names[0] == names[1]:
        raise ConfigError(f"A and B must be two folders of results, got {names[0]!r} twice")
    first, second = (folders.read(Path(), name, PATHS) for name in names)
    sheet = compared.sheet(first, second, args.words)
    print(render.to_markdown(sheet))
    csv = Path("results") / f"{sheet.label}.csv"
    write_text(csv, render.to_csv(sheet))
    print(f"All numbers: {csv}")
