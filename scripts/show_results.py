"""Print a table of each paper and the places of all files; the last step of `make demo`."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib import papers
from fedlib.errors import DataError
from fedlib.spec import scale_of
from fedlib.workflow import command


def main() -> None:
    """Print the tables that were asked for, and the names of the files of results/FOLDER."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="demo, reduced or full, or with a tag: demo-quick")
    parser.add_argument("tables", nargs="*", help="which to print, PAPER/TABLE")
    args = parser.parse_args()
    results, figures = Path("results") / args.folder, Path("figures") / args.folder
    scale = scale_of(args.folder)
    for name in args.tables:
        print(f"\n{papers.load(name.partition('/')[0]).declare(scale).title}\n")
        print(_text(results / "tables" / f"{name}.md").strip())
    print(
        f"\nReport:   {results}/report.html (open it in a browser), {results}/REPORT.md"
        f"\nTables:   {results}/tables/ (csv, json, md, tex)"
        f"\nFigures:  {figures}/ (pdf, png, svg)"
        f"\nNumbers:  {results}/metrics/ (csv, parquet; one row per value)"
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; run the workflow again") from None


if __name__ == "__main__":
    sys.exit(command.run(main))
