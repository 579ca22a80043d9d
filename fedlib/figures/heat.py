"""Matrices of probabilities as panels of a figure: experts side by side, 0 white."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator


def draw(
    axes: Axes,
    values: np.ndarray,
    colors: str,
    columns: Sequence[str],
    xlabel: str,
    most: float = 1.0,
) -> AxesImage:
    """One matrix, its first row on top; the colours of all such panels mean the same.

    Args:
      axes: to draw on.
      values: [rows, columns] in [0, 1].
      colors: a colour map of Matplotlib that begins with white.
      columns: their names.
      xlabel: what they are.
      most: what the darkest shade stands for, the same for all panels of a figure.
    """
    shades = {"cmap": colors, "vmin": 0, "vmax": most}
    image = axes.imshow(values, **shades, aspect="auto", interpolation="none")
    axes.grid(False)
    axes.set_xticks(range(values.shape[1]), columns)
    axes.set_xlabel(xlabel)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    for spine in axes.spines.values():
        spine.set_visible(True)
    return image


def scale(figure: Figure, image: AxesImage, axes: list[Axes], label: str) -> None:
    """What the shades mean, right of the panels."""
    _, most = image.get_clim()
    ticks = [0, most / 2, most]
    bar = figure.colorbar(image, ax=axes, shrink=0.75, aspect=18, pad=0.015, ticks=ticks)
    bar.set_label(label)


def experts(number: int) -> list[str]:
    """Names of so many columns of experts, counted from 1."""
    return [str(expert + 1) for expert in range(number)]
