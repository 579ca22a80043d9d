"""Saves a figure: names are broken to fit, it is laid out once, and its bytes are reproducible."""

import re
import textwrap
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Text

from fedlib.files import atomic
from fedlib.report.figures.style import SETTINGS, use_style

CLIP = "p[0-9a-f]{10}"  # name of a clip path, as matplotlib gives it
OVERHANG = 1.12  # greatest length of a name, relative to its axis or panel
# Dates and versions are left out of the files, so that the same figure gives the same bytes.
METADATA = {
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
}
CANVASES = {".pdf": FigureCanvasPdf, ".png": FigureCanvasAgg, ".svg": FigureCanvasSVG}


def save(figure: Figure, *files: str | Path) -> None:
    """Write `files`, each atomically, in the format of its suffix: .pdf, .png or .svg.

    The figure is laid out once and drawn once per file; `Figure.savefig` does both twice.
    """
    with use_style():
        fit(figure)
        figure.set_layout_engine("none")
        for path in map(Path, files):
            write = getattr(CANVASES[path.suffix](figure), f"print_{path.suffix[1:]}")
            figure.set_dpi(SETTINGS["savefig.dpi"])  # vector formats set and keep their own
            with atomic(path) as temporary:
                write(temporary, metadata=METADATA[path.suffix])
                if path.suffix == ".svg":
                    _number_clips(temporary)


def _number_clips(svg: Path) -> None:
    """Number the clip paths of an SVG file.

    Their names are digests of positions, whose last bits follow addresses of memory in the layout.
    """
    text = svg.read_text(encoding="utf-8")
    names = dict.fromkeys(re.findall(rf'<clipPath id="({CLIP})"', text))
    number = {name: f"p{place}" for place, name in enumerate(names)}
    pattern = rf'(?<=id=")({CLIP})(?=")|(?<=url\(#)({CLIP})(?=\))'
    svg.write_text(re.sub(pattern, lambda found: number[found[0]], text), encoding="utf-8")


def fit(figure: Figure) -> None:
    """Break names that are longer than their axis or panel into lines."""
    for _ in range(3):  # a broken name takes room from the panels
        figure.draw_without_rendering()
        if not any([_break(name, room) for axes in figure.axes for name, room in _names(axes)]):
            return


def _names(axes: Axes) -> list[tuple[Text, float]]:
    """The names along the panel's sides, each with the side's length in pixels."""
    box = axes.get_window_extent()
    return [(axes.yaxis.label, box.height), (axes.xaxis.label, box.width), (axes.title, box.width)]


def _break(name: Text, room: float) -> bool:
    """Break a name that needs more than `room` pixels into lines; whether it changed."""
    box, turned = name.get_window_extent(), name.get_rotation() == 90
    needed = box.height if turned else box.width
    if needed <= OVERHANG * room:
        return False
    lines = name.get_text().split("\n")
    fitting = max(1, int(max(map(len, lines)) * room / needed))
    text = "\n".join(wrap(line, fitting) for line in lines)
    changed = text != name.get_text()
    name.set_text(text)
    return changed


def wrap(line: str, width: int) -> str:
    """A line in parts of up to `width` characters, cut at the last comma if possible."""
    before, comma, after = line.rpartition(", ")
    if comma and width < len(line) and max(len(before) + 1, len(after)) <= width:
        return f"{before},\n{after}"
    return textwrap.fill(line, width, break_long_words=False)
