#!/usr/bin/env python3
"""Put all tables and figures of a folder on one page, as Markdown and as HTML.

It needs no Snakemake state.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib import files, seals
from fedlib.report.pages import as_html, as_markdown
from fedlib.report.pages.contents import check_pictures, gather
from fedlib.workflow import command, layout, provenance


def main() -> None:
    """Parse the command line, gather, write."""
    folders = {"results": "results/FOLDER", "figures": "figures/FOLDER"}
    outputs = {"md": "output, REPORT.md", "html": "output, report.html"}
    args = command.job_parser(__doc__, "report", **folders, **outputs).parse_args()

    code = provenance.check_code(args.code, "scripts/report.py")
    spec = command.json_argument(args.spec, "papers", "scale", "folder")
    shown = layout.report_inputs(spec, args.results, args.figures)
    read = seals.contents(*shown, *layout.templates(provenance.ROOT))
    check_pictures(spec, args.figures)
    content = gather(spec, args.results, args.figures)
    made = seals.Made(seals.spec_digest(spec), code, read, seals.contents())
    note = f"\n<!-- {made} -->\n"
    files.write_text(args.md, as_markdown.page(content, args.md) + note)
    files.write_text(args.html, as_html.page(content) + note)
    provenance.assert_covered("scripts/report.py")
    print(f"Report: {args.html} (open it in a browser), {args.md}")


if __name__ == "__main__":
    sys.exit(command.run(main))
