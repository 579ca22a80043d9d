"""The report as Markdown: one page with all results, beside their files."""

import os
from functools import partial
from pathlib import Path

from fedlib.report import pictures
from fedlib.report.pages import contents, filling
from fedlib.report.pages.contents import Entry, Report
from fedlib.report.tables.render import percent, points


def page(content: Report, out: Path | None = None) -> str:
    """The report; `out` is its future path, as links start there (None: beside its figures).

    Raises:
      DataError: if a figure is missing.
    """
    return filling.markdown(
        "report.md.j2",
        {"link": partial(_link, folder=out and out.parent), "percent": percent, "points": points},
        title="# Reproduction report: ",
        content=content,
        contents=contents,
    )


def _link(figure: Entry, folder: Path | None) -> str:
    """The address of a figure without its ending."""
    pictures.require(figure.picture.with_name(f"{figure.picture.name}.png"), "figure")
    return Path(os.path.relpath(figure.picture, folder or figure.picture.parent)).as_posix()
