#!/usr/bin/env python3
"""Put all tables and figures of a folder on one page, as Markdown and as HTML.

It needs no Snakemake state.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib import files, seals
from fedlib.report.pages import as_html, as_markdown
from fedlib.report.pages.contents import check_pictures, gather
from fedlib.workflow import command, layout, provenance


def main() -> None:
    """Parse the command line, gather, write."""
    parser = argparse.ArgumentParser(description=command.described(__doc__))
    parser.add_argument("--spec", required=True, help="report specification, JSON or @path")
    parser.add_argument("--results", type=Path, required=True, help="results/FOLDER")
    parser.add_argument("--figures", type=Path, required=True, help="figures/FOLDER")
    parser.add_argument("--md", type=Path, required=True, help="output, REPORT.md")
    parser.add_argument("--html", type=Path, required=True, help="output, report.html")
    parser.add_argument("--code", help="digest of the code this job was planned with")
    args = parser.parse_args()

    provenance.check_code(args.code, "scripts/report.py")
    spec = command.json_argument(args.spec)
    check_pictures(spec, args.figures)
    content = gather(spec, args.results, args.figures)
    shown = layout.shown(spec, args.results, args.figures)
    read = seals.contents(*shown, *layout.templates(provenance.ROOT))
    code = provenance.code_digest("scripts/report.py")
    made = seals.Made(seals.spec_digest(spec), code, read, seals.contents())
    note = f"\n<!-- {made} -->\n"
    files.write_text(args.md, as_markdown.page(content, args.md) + note)
    files.write_text(args.html, as_html.page(content) + note)
    provenance.assert_covered("scripts/report.py")
    print(f"Report: {args.html} (open it in a browser), {args.md}")


if __name__ == "__main__":
    sys.exit(command.run(main))
