"""The report as Markdown: one page with all results, beside their files."""

import os
from functools import partial
from pathlib import Path

from fedlib.errors import DataError
from fedlib.report.pages import contents, filling
from fedlib.report.pages.contents import Entry, Report
from fedlib.report.pages.origin import FACT_TITLES
from fedlib.report.tables.render import markdown, markdown_table, percent, points

TITLE = "# Reproduction report: "


def page(content: Report, out: Path | None = None) -> str:
    """The report; `out` is its future path, as links start there (None: beside its figures).

    Raises:
      DataError: if a figure is missing.
    """
    return filling.markdown(
        "report.md.j2",
        {"link": partial(_link, folder=out and out.parent), "by_run": _by_run},
        title=TITLE,
        content=content,
        contents=contents,
        fact_titles=FACT_TITLES,
        pairs=_pairs(content),
    )


def _link(figure: Entry, folder: Path | None) -> str:
    """The address of a figure without its ending."""
    if not figure.picture.with_name(f"{figure.picture.name}.png").exists():
        raise DataError(f"{figure.picture}.png does not exist; run the figure stage first")
    return Path(os.path.relpath(figure.picture, folder or figure.picture.parent)).as_posix()


def _pairs(content: Report) -> str:
    """Every published number beside ours; "" if there is none."""
    rows = [
        [
            markdown(chapter.title),
            f"[{row['table']}](#{row['exhibit']})",
            *(markdown(row[name]) for name in ("federation", "title")),
            contents.METRICS.get(row["metric"], row["metric"]),
            *(percent(row[name]) for name in ("published", "reproduced")),
            points(row["difference"]),
        ]
        for chapter in content.chapters
        for row in chapter.pairs.to_dict("records")
    ]
    head = ["Paper", "Table", "Data set", "Method", "Metric", "Published", "Ours", "Difference"]
    return markdown_table(rows, head, num_keys=5) if rows else ""


def _by_run(table: tuple[list[str], list[list[str]]]) -> str:
    """Differences between runs, see `Origin.by_run`; "" if there are none."""
    heads, rows = table
    cells = [[markdown(text) for text in row] for row in rows]
    return markdown_table(cells, heads, num_keys=len(heads)) if rows else ""
