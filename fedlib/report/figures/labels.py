"""Names beside points, without overlaps.

Each name takes the nearest free place around its point; a thin line leads to a distant name. Widths
of names are estimated, not measured, so that places do not depend on fonts.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from fedlib.report.figures import style

LETTER, LINE = 0.7, 1.3  # width of a letter (of pFedMM, the mean) and height of a line, in em
MARKER = 4.0  # typographic points from the middle of a marker to its side
REACH = (6, 10, 15, 21, 28, 36, 46, 58)  # points between a marker's middle and its name
LED = 12  # distance from which a line leads to the name, in points
TURNS = np.array([0, 8, 4, 12, 2, 14, 6, 10, 1, 15, 7, 9, 3, 13, 5, 11]) * np.pi / 8  # in order


def write(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    bold: Sequence[bool],
    size: tuple[float, float],
    lines: Sequence[Sequence[tuple[float, float]]] = (),
) -> None:
    """Write the name of each point beside it.

    Args:
      points: in data coordinates, within the axes' limits, which stay as they are.
      bold: whether each name is bold.
      size: approximate width and height of the panel, in typographic points.
      lines: corners of lines with horizontal and vertical parts, which names must not cover.
    """
    limits = [axes.get_xlim(), axes.get_ylim()]
    low, high = axes.transScale.transform(np.transpose(limits))

    def on_panel(places: Sequence[tuple[float, float]]) -> np.ndarray:
        whole = axes.transScale.transform(np.reshape(places, (-1, 2)))
        return (whole - low) / (high - low) * np.array(size)

    ends = [pair for line in lines for pair in pairwise(on_panel(line))]
    parts = [Bbox([np.minimum(a, b), np.maximum(a, b)]) for a, b in ends]
    for number, (x, y) in places(on_panel(points), names, size, parts).items():
        far = np.hypot(x, y) > LED
        lead = {"arrowstyle": "-", "color": style.GREY, "linewidth": 0.5, "shrinkA": 0}
        axes.annotate(
            names[number],
            points[number],
            (x, y),
            textcoords="offset points",
            ha="left" if x > 1 else "right" if x < -1 else "center",
            va="center",
            fontsize=style.SMALL,
            fontweight="bold" if bold[number] else "normal",
            arrowprops={**lead, "shrinkB": MARKER} if far else None,
        )


def places(
    points: np.ndarray,
    names: Sequence[str],
    size: tuple[float, float],
    others: Sequence[Bbox] = (),
) -> dict[int, tuple[float, float]]:
    """Offset from each point to the start or end of its name, by the point's number.

    Args:
      points: [N, 2] in typographic points from the lower left corner.
      others: further boxes that names must not cover.
    """
    panel = Bbox([(0, 0), size])
    markers = [Bbox([place - MARKER, place + MARKER]) for place in points]
    taken = [*others, *markers]
    found = {}
    for number in np.lexsort((points[:, 0], -points[:, 1])).tolist():  # from the top
        every = [*candidates(points[number], names[number])]
        free = (p for p in every if inside(panel, p[1]) and not p[1].count_overlaps(taken))
        found[number], box = next(free, every[0])  # without room, beside its point
        taken.append(box)
    return found


def inside(panel: Bbox, box: Bbox) -> bool:
    """Whether all of a box is in a panel."""
    return panel.contains(*box.p0) and panel.contains(*box.p1)


def candidates(point: np.ndarray, name: str) -> Iterator[tuple[tuple[float, float], Bbox]]:
    """Places for a name, nearest first, and right and left before others."""
    width, height = LETTER * style.SMALL * len(name), LINE * style.SMALL
    for reach in REACH:
        for turn in TURNS:
            x, y = (reach * np.array([np.cos(turn), np.sin(turn)])).tolist()
            side = 0 if x > 1 else 1 if x < -1 else 0.5
            if side == 0.5:  # above or below
                y += np.sign(y) * height / 4
            left, middle = point[0] + x - side * width, point[1] + y
            yield (x, y), Bbox.from_bounds(left, middle - height / 2, width, height)
