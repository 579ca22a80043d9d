"""Print the main table of each paper and where everything else is; the last step of `make demo`."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib import papers
from fedlib.errors import DataError
from fedlib.spec import scale_of
from fedlib.workflow import command


def main() -> None:
    """Print what is in results/FOLDER and figures/FOLDER."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="demo, reduced or full, or with a tag: demo-quick")
    folder = parser.parse_args().folder
    results, figures = Path("results") / folder, Path("figures") / folder
    tables = sorted((results / "tables").glob("*"))
    if not tables:
        raise DataError(f"{results} has no tables; `make {folder.partition('-')[0]}` builds them")
    for directory in tables:
        paper = papers.load(directory.name).declare(scale_of(folder))
        main_table = next(iter(paper.tables))
        print(f"\n{paper.title}\n")
        print((directory / f"{main_table}.md").read_text(encoding="utf-8").strip())
    print(
        f"\nReport:   {results}/report.html (open it in a browser) and {results}/REPORT.md"
        f"\nTables:   {results}/tables/ (csv, md, tex)"
        f"\nFigures:  {figures}/ (pdf, png)"
        f"\nNumbers:  {results}/metrics/ (csv, parquet; one row per value)"
    )


if __name__ == "__main__":
    sys.exit(command.run(main))
