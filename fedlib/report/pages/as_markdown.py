"""The report as Markdown: one page with all results, beside their files."""

import os
from functools import partial
from pathlib import Path

from fedlib.errors import DataError
from fedlib.report.pages import contents, filling
from fedlib.report.pages.contents import Chapter, Entry, Report
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


def _by_run(chapter: Chapter) -> str:
    """Differences between runs, and their times, run by run; "" if there are no differences."""
    differing = [name for name, values in chapter.origin.facts.items() if len(values) > 1]
    rows = [
        [
            markdown(run.name),
            ", ".join(map(str, run.seeds)),
            *(markdown("; ".join(run.facts.get(name, {}))) for name in differing),
            run.spent.texts[1] if run.spent.jobs else "",
        ]
        for run in chapter.origin.runs
    ]
    heads = ["run", "seeds", *(FACT_TITLES.get(name, name) for name in differing), "CPU time"]
    return markdown_table(rows, heads, num_keys=len(heads)) if differing else ""
