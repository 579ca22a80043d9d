"""Matrices of numbers from 0 on as panels of a figure, such as weights of experts; 0 is white."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from fedlib.report.figures import style

NOTHING = "#D9D9D9"  # of cells without a number


def draw(
    axes: Axes,
    values: np.ndarray,
    columns: Sequence[str],
    xlabel: str = "",
    most: float = 1.0,
    rows: Sequence[str] = (),
) -> AxesImage:
    """Draw one matrix, its first row on top, with the same colours in all such panels.

    Args:
      axes: the panel.
      values: [rows, columns] in [0, most]; NaN is grey.
      columns: names of the columns.
      xlabel: name of the x axis; "" leaves it unchanged.
      most: value of the darkest shade, the same for all panels of a figure.
      rows: names of the rows; without them, their numbers from 0.
    """
    shades = {"cmap": style.SHADES, "vmin": 0, "vmax": most}
    image = axes.imshow(values, **shades, aspect="auto", interpolation="none")
    axes.set_facecolor(NOTHING)
    axes.grid(False)
    axes.set_xticks(range(values.shape[1]), columns)
    axes.set_xlabel(xlabel or axes.get_xlabel())
    axes.yaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    named = dict(enumerate(rows))
    axes.yaxis.set_major_formatter(lambda row, _: named.get(row, "") if rows else f"{row:g}")
    for spine in axes.spines.values():
        spine.set_visible(True)
    return image


def scale(figure: Figure, image: AxesImage, axes: list[Axes], label: str) -> None:
    """Draw the colour bar, right of the panels."""
    ticks = MaxNLocator(nbins=4, steps=[1, 2, 5, 10])
    figure.colorbar(image, ax=axes, aspect=25, pad=0.015, ticks=ticks).set_label(label)


def experts(number: int) -> list[str]:
    """Names of the columns of `number` experts, counted from 1."""
    return [str(expert + 1) for expert in range(number)]
