"""Parts stacked along an axis: one shape per part, in the project's palette."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from fedlib.report.figures import style


def draw(axes: Axes, sizes: np.ndarray, edges: np.ndarray) -> None:
    """Draw sizes [X, parts] between their edges [X + 1], the first part at the bottom."""
    bottom = np.zeros(len(sizes))
    for part, size in enumerate(sizes.T):
        about = {"baseline": bottom, "fill": True, "linewidth": 0, "color": _color(part)}
        axes.stairs(bottom + size, edges, **about)
        bottom = bottom + size
    axes.set_xlim(edges[0], edges[-1])
    axes.grid(False)


def handles(titles: list[str]) -> list[Patch]:
    """Legend entries of the parts, from the bottom."""
    return [Patch(color=_color(part), label=title) for part, title in enumerate(titles)]


def _color(part: int) -> str:
    return style.PALETTE[part % len(style.PALETTE)]
