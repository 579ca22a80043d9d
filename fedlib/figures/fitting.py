"""Names of axes and panels that are too long for what they name, broken into lines."""

import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

OVERHANG = 1.12  # a name may be so much longer than the axis or panel that it names


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
