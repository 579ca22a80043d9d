"""Print the project's parts and their sources, see `fedlib.workflow.listing`."""

import argparse
import shutil
import sys
import textwrap
from collections import Counter

from fedlib.cli import arguments
from fedlib.workflow import listing

INDENT, LABEL = 4, 11


def main(args: argparse.Namespace) -> None:
    """Print all kinds, or one with its entries."""
    plan = arguments.plan(args)
    for name, why in plan.broken.items():
        print(f"paper {name} is left out: {why}", file=sys.stderr)
    width = min(shutil.get_terminal_size((100, 0)).columns, 120)
    for kind, entries in listing.listed(plan, args.what).items():
        print(f"{kind} ({len(entries)})")
        if not args.what:
            print("\n".join(_paragraph(_names(entries), "", width)))
            continue
        for entry in entries:
            print("\n".join(_block(entry, width)))
        print()
    if not args.what:
        print('\nmake list WHAT=methods says more of a kind, WHAT="methods fedmix" of some of it.')


def _names(entries: list[listing.Listed]) -> str:
    """The names of a kind's entries, or their number in each paper."""
    papers = Counter(entry.name.partition("/")[0] for entry in entries)
    if len(papers) == len(entries):
        return ", ".join(papers)
    return ", ".join(f"{number} of {paper}" for paper, number in papers.items())


def _block(entry: listing.Listed, width: int) -> list[str]:
    """An entry as lines: name and title, and facts below."""
    lines = ["", f"  {entry.name}", *_paragraph(entry.title, "", width)]
    for label, text in entry.facts.items():
        lines += _paragraph(text, label, width) if text else []
    return lines


def _paragraph(text: str, label: str, width: int) -> list[str]:
    first = " " * INDENT + (f"{label:<{LABEL}}" if label else "")
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
