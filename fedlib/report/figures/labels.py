"""Names beside points, without overlaps.

Each name takes the nearest free place around its point; a thin line leads to a distant name. Widths
of names are estimated, not measured, so that places do not depend on fonts.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from fedlib.report.figures import style

LETTER, LINE = 0.6, 1.3  # mean width of a letter and height of a line, relative to the type size
MARKER = 4.0  # typographic points from the middle of a marker to its side
REACH = (6, 10, 15, 21, 28, 36, 46, 58)  # points between a marker's middle and its name
LED = 12  # distance from which a line leads to the name, in points
TURNS = np.array([0, 8, 4, 12, 2, 14, 6, 10, 1, 15, 7, 9, 3, 13, 5, 11]) * np.pi / 8  # in order


class Box(NamedTuple):
    """A rectangle, in typographic points."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: "Box") -> bool:
        """Whether the two overlap."""
        apart = self.left >= other.right or other.left >= self.right
        return not (apart or self.bottom >= other.top or other.bottom >= self.top)

    def inside(self, width: float, height: float) -> bool:
        """Whether the box is inside a panel of this size."""
        return self.left >= 0 and self.bottom >= 0 and self.right <= width and self.top <= height


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
    parts = [Box(*np.minimum(a, b), *np.maximum(a, b)) for a, b in ends]
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
    others: Sequence[Box] = (),
) -> dict[int, tuple[float, float]]:
    """Offset from each point to the start or end of its name, by the point's number.

    Args:
      points: [N, 2] in typographic points from the lower left corner.
      others: further boxes that names must not cover.
    """
    markers = [Box(x - MARKER, y - MARKER, x + MARKER, y + MARKER) for x, y in points]
    taken = [*others, *markers]
    found = {}
    for number in np.lexsort((points[:, 0], -points[:, 1])).tolist():  # from the top
        every = [*_candidates(points[number], names[number])]
        free = (p for p in every if p[1].inside(*size) and not any(map(p[1].meets, taken)))
        found[number], box = next(free, every[0])  # without room, beside its point
        taken.append(box)
    return found


def _candidates(point: np.ndarray, name: str) -> Iterator[tuple[tuple[float, float], Box]]:
    """Places for a name, nearest first, and right and left before others."""
    width, height = LETTER * style.SMALL * len(name), LINE * style.SMALL
    for reach in REACH:
        for turn in TURNS:
            x, y = (reach * np.array([np.cos(turn), np.sin(turn)])).tolist()
            side = 0 if x > 1 else 1 if x < -1 else 0.5
            if side == 0.5:  # above or below
                y += np.sign(y) * height / 4
            left, middle = point[0] + x - side * width, point[1] + y
            yield (x, y), Box(left, middle - height / 2, left + width, middle + height / 2)
