"""List the project's parts and their sources: `python scripts/list.py methods fedmix`.

The first word is a kind: papers, federations, methods, models, datasets, partitions, tables or
figures. Without it, the names of all kinds are listed. Further words select entries that contain
all of them.
"""

import argparse
import shutil
import signal
import sys
import textwrap
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of imports; see command.run

from fedlib.workflow import command, config, listing
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT

INDENT, LABEL = 4, 11


def main() -> None:
    """Parse the arguments and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", help="a kind, then words to search for; see above")
    parser.add_argument(
        "--configfile", nargs="+", default=[], help="YAML or JSON, overrides config.yaml"
    )
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="overrides it")
    args = parser.parse_args()
    plan = Plan(config.read([ROOT / "config.yaml", *args.configfile], args.config))
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


def _names(entries: list[listing.Entry]) -> str:
    """What there is of a kind, or how much each paper has of it."""
    papers = Counter(entry.name.partition("/")[0] for entry in entries)
    if len(papers) == len(entries):
        return ", ".join(papers)
    return ", ".join(f"{number} of {paper}" for paper, number in papers.items())


def _block(entry: listing.Entry, width: int) -> list[str]:
    """An entry as lines: its name and title, and its facts below."""
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


if __name__ == "__main__":
    sys.exit(command.run(main))
