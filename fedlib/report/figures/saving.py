"""A figure in files: names that fit what they name, laid out once, the same bytes each time."""

import textwrap
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Text

from fedlib.files import atomic
from fedlib.report.figures.style import SETTINGS, styled

OVERHANG = 1.12  # a name may be so much longer than the axis or panel that it names
# Dates and versions are left out of the files, so that the same figure gives the same bytes.
METADATA = {
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
}
CANVASES = {".pdf": FigureCanvasPdf, ".png": FigureCanvasAgg, ".svg": FigureCanvasSVG}


def save(figure: Figure, *files: str | Path) -> None:
    """Write `files`, each atomically, in the format of its suffix: .pdf, .png or .svg.

    The figure is laid out once, and drawn once for each file; `Figure.savefig` does both twice.
    """
    with styled():
        fit(figure)
        figure.set_layout_engine("none")
        for path in map(Path, files):
            write = getattr(CANVASES[path.suffix](figure), f"print_{path.suffix[1:]}")
            figure.set_dpi(SETTINGS["savefig.dpi"])  # vector formats set their own, and keep it
            with atomic(path) as temporary:
                write(temporary, metadata=METADATA[path.suffix])


def fit(figure: Figure) -> None:
    """Break the names of axes and panels that are longer than what they name."""
    for _ in range(3):  # a broken name takes room from the panels
        figure.draw_without_rendering()
        if not any([_broken(name, room) for axes in figure.axes for name, room in _names(axes)]):
            return


def _names(axes: Axes) -> list[tuple[Text, float]]:
    """What is written along the panel's sides, and how long that side is, in pixels."""
    box = axes.get_window_extent()
    return [(axes.yaxis.label, box.height), (axes.xaxis.label, box.width), (axes.title, box.width)]


def _broken(name: Text, room: float) -> bool:
    """Break a name into lines if it needs more pixels than there is room for; whether it was."""
    box, turned = name.get_window_extent(), name.get_rotation() == 90
    needed = box.height if turned else box.width
    if needed <= OVERHANG * room:
        return False
    lines = name.get_text().split("\n")
    fitting = max(1, int(max(map(len, lines)) * room / needed))
    text = "\n".join(wrapped(line, fitting) for line in lines)
    changed = text != name.get_text()
    name.set_text(text)
    return changed


def wrapped(line: str, width: int) -> str:
    """A line in parts of so many characters, cut at a comma if that does, or else at any blank."""
    before, comma, after = line.rpartition(", ")
    if comma and width < len(line) and max(len(before) + 1, len(after)) <= width:
        return f"{before},\n{after}"
    return textwrap.fill(line, width, break_long_words=False)
