"""The report as HTML: one self-contained file for a browser, without a network.

It contains style, script and pictures, and a policy in its head forbids the browser to load
anything else. The template and its parts are in `templates/`. Figures are vector graphics, which
the script inserts only as they scroll near, so that a page with dozens of them opens quickly.
"""

import base64
import functools
import os
import re
from pathlib import Path

from fedlib.environment import ROOT
from fedlib.report import pictures
from fedlib.report.looks import paper_color
from fedlib.report.pages import contents, filling, findings
from fedlib.report.pages.contents import Entry, Report
from fedlib.report.tables import render

AT_ONCE = 2  # exhibits of a paper that are not folded
UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "min": 60, "h": 3600}
ENLARGED = 1.3 * 4 / 3  # CSS pixels per point; 1.3 enlarges figures for a screen
NUMBER = re.compile(
    r"\[?([+−-]?\d+(?:[ ,]\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?)(?: ?([kMGTPE]|min|h)\b)?"
)


def page(content: Report) -> str:
    """The report as the text of an HTML file.

    Raises:
      DataError: if a figure is missing.
    """
    return _template().render(
        content=content,
        contents=contents,
        findings=findings,
        home=(Path("../..") / os.path.relpath(ROOT)).as_posix(),  # from results/FOLDER
    )


@functools.cache
def _template():
    filters = {"sort_value": sort_value, "spans": render.spans}
    environment = filling.environment(True, filters)
    environment.globals |= {
        "AT_ONCE": AT_ONCE,
        "is_ours": lambda paper: (ROOT / f"fedlib/papers/{paper}/README.md").exists(),
        "paper_color": paper_color,
        "picture": _picture,
        "render": render,
        "told": _told,
    }
    return environment.get_template("report.html.j2")


def _told(claim: dict, of: str) -> str:
    """A claim's numbers behind the names of their runs: its own, then the others or the best."""
    own, *others = zip(claim["terms"].split("; "), claim[of].split(", "), strict=False)
    if claim["kind"] == "highest":
        others = sorted(others, key=lambda x: (x[1] != render.ABSENT, sort_value(x[1])))[-1:]
    texts = [f"{name} {value}" for name, value in (own, *others)]
    return ", ".join(texts) if others else own[1]


def sort_value(text: str) -> float | None:
    """The number by which a cell is sorted, at the start of its text; None if there is none."""
    found = NUMBER.match(text)
    if not found:
        return None
    number, unit = found.groups()
    return float(re.sub("[ ,]", "", number.replace("−", "-"))) * UNITS.get(unit, 1)


def _picture(figure: Entry) -> dict:
    """Address of a figure, its size in CSS pixels, and its curves."""
    path = figure.picture.with_name(f"{figure.picture.name}.svg")
    data = pictures.require(path, "figure").read_bytes()
    box = re.search(rb'viewBox="0 0 ([\d.]+) ([\d.]+)"', data)
    width, height = (round(float(length) * ENLARGED) for length in box.groups())
    address = f"data:image/svg+xml;base64,{base64.b64encode(data).decode()}"
    shown = {"width": width, "height": height, "panels": pictures.panels(figure.picture)}
    return shown | {"address": address, "file": f"{figure.anchor}.svg"}
