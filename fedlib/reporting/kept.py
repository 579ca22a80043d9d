"""What a kept page has besides the report: every published cell beside ours, what runs took."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from fedlib.exhibits.selection import METRIC_TITLES
from fedlib.tables.render import markdown, percent, points

NEAR = 0.02  # a cell is reproduced if it is within two points of the published number
STAGES = ("train", "evaluate")
HEAD = ("Table", "Data set", "Method", "Metric", "Published", "Ours", "Difference", "Seeds")
FIELDS = {"published", "difference", "metric", "title", "federation"}


def sections(spec: dict, results: Path, benchmarks: Iterable[Path]) -> str:
    """Both sections as Markdown; "" for one that has nothing to say.

    Args:
      spec: of the report, see `fedlib.reporting.content.gather`.
      results: folder with tables/PAPER/TABLE.csv.
      benchmarks: files of the jobs that trained and evaluated, as Snakemake writes them.
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
    if took := _took(benchmarks):
        parts.append(f"## What the runs took\n\n{took}")
    return "".join(f"\n{part}\n" for part in parts)


def _cells(paper: dict, results: Path) -> Iterator[tuple]:
    """(table, data set, method, metric, published, ours, difference, seeds) of each cell."""
    for table in paper["tables"]:
        numbers = pd.read_csv(results / "tables" / paper["name"] / f"{table['name']}.csv")
        if not FIELDS <= {*numbers}:
            continue
        for _, cell in numbers.dropna(subset=["published", "difference"]).iterrows():
            words = table["title"], cell["federation"], cell["title"]
            metric = METRIC_TITLES.get(cell["metric"], cell["metric"])
            ours = cell["published"] + cell["difference"]
            numbers_of = cell["published"], ours, cell["difference"]
            yield (*map(markdown, words), metric, *numbers_of, cell.get("seeds", ""))


def _took(benchmarks: Iterable[Path]) -> str:
    """Wall and CPU time of the jobs of each stage, and the most memory; "" without any."""
    rows = []
    entries = [entry for path in benchmarks if path.exists() for entry in _entries(path)]
    for stage in STAGES:
        mine = [entry for entry in entries if entry["rule_name"] == stage]
        if mine:
            wall, cpu = (sum(_number(e.get(k)) for e in mine) for k in ("s", "cpu_time"))
            most = max(_number(e.get("max_rss")) for e in mine)
            times = [f"{seconds / 3600:.2f} h" for seconds in (wall, cpu)]
            rows.append((stage, str(len(mine)), *times, f"{most / 1000:.1f} GB"))
    if not rows:
        return ""
    head = ("Stage", "Jobs", "Wall time", "CPU time", "Most memory")
    align = ["left"] + ["right"] * 4
    grid = tabulate(rows, head, tablefmt="pipe", disable_numparse=True, colalign=align)
    return f"As Snakemake measured; it samples CPU time and memory.\n\n{grid}"


def _entries(path: Path) -> Iterator[dict]:
    """The last measurement in a file, if it says of which job it is."""
    for line in path.read_text(encoding="utf-8").splitlines()[-1:]:
        entry = json.loads(line)
        if "rule_name" in entry:
            yield entry


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
