"""What a kept page has besides the report: every published cell beside ours, what runs took."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from fedlib.report.pages import contents
from fedlib.report.pages.contents import NEAR
from fedlib.report.pages.origin import attributes, spent
from fedlib.report.tables.render import markdown, percent, points
from fedlib.spec.exhibits import KINDS

HEAD = ("Table", "Data set", "Method", "Metric", "Published", "Ours", "Difference", "Seeds")


def shelf(kept: Path, scale: str) -> Path:
    """Where papers of a scale have their folders: those with the papers' own settings apart."""
    return kept / "full" if scale == "full" else kept


def is_worth_keeping(stage: str, exhibit: dict) -> bool:
    """Whether a table or figure (`stage`) shows results: a comparison needs two runs, or numbers.

    What shows data alone is not kept, as packs have none.

    Args:
      exhibit: see `fedlib.report.exhibits`.
    """
    kind, beside = KINDS[stage][exhibit["kind"]], exhibit["published"] is not None
    if len(exhibit["runs"]) > 1 or kind.shows_data:
        return not kind.shows_data
    return not kind.is_lead and (beside or not kind.compares)


def sections(spec: dict, results: Path, made: Mapping[str, Iterable[Path]]) -> str:
    """Both sections as Markdown; "" for one that has nothing to say.

    Args:
      spec: of the report, see `fedlib.report.pages.contents.gather`.
      results: folder with tables/PAPER/TABLE.csv.
      made: results of runs, by the stage that wrote them; those that are not there do not count.
    """
    cells = [row for paper in spec["papers"] for row in _cells(paper, results)]
    parts = []
    if cells:
        near = sum(abs(row[-2]) <= NEAR for row in cells)
        rows = [
            (*row[:4], percent(row[4]), percent(row[5]), points(row[6]), str(row[7]))
            for row in cells
        ]
        align = ["left"] * 4 + ["right"] * 4
        grid = tabulate(rows, HEAD, tablefmt="pipe", disable_numparse=True, colalign=align)
        parts.append(
            "## Every published cell\n\n"
            f"{near} of {len(cells)} within two percentage points. In percent; ours is at the "
            f"round that the table compares.\n\n{grid}"
        )
    if took := _took(made):
        parts.append(f"## What the runs took\n\n{took}")
    return "".join(f"\n{part}\n" for part in parts)


def _cells(paper: dict, results: Path) -> Iterator[tuple]:
    """(table, data set, method, metric, published, ours, difference, seeds) of each cell."""
    for table in paper["tables"]:
        file = results / "tables" / paper["name"] / f"{table['name']}.csv"
        for _, cell in compared(file).iterrows():
            words = table["title"], cell["federation"], cell["title"]
            metric = contents.METRICS.get(cell["metric"], cell["metric"])
            numbers = (cell[name] for name in ("published", "reproduced", "difference"))
            yield (*map(markdown, words), metric, *numbers, cell.get("seeds", ""))


def compared(file: Path) -> pd.DataFrame:
    """`contents.compared` of a table's csv."""
    return contents.compared(pd.read_csv(file, dtype={"federation": str, "title": str}))


def _took(made: Mapping[str, Iterable[Path]]) -> str:
    """Wall and CPU time of the jobs of each stage, and the most memory; "" without any."""
    rows = []
    for stage, paths in made.items():
        found = [attributes(path)[0] for path in paths if path.exists()]
        took = spent(found)
        if took.jobs:
            rows.append((stage, f"{took.jobs} of {len(found)}", *took.texts))
    if not rows:
        return ""
    head = ("Stage", "Jobs", "Wall time", "CPU time", "Most memory")
    grid = tabulate(rows, head, tablefmt="pipe", disable_numparse=True,
                    colalign=["left"] + ["right"] * 4)  # fmt: skip
    return f"Of the jobs that recorded it; those that were resumed count as one.\n\n{grid}"
