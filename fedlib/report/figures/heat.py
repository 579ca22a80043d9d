"""Matrices of probabilities as panels of a figure: experts side by side, 0 white."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs


def draw(
    axes: Axes,
    values: np.ndarray,
    columns: Sequence[str],
    xlabel: str = "",
    most: float = 1.0,
) -> AxesImage:
    """One matrix, its first row on top; the colours of all such panels mean the same.

    Args:
      axes: to draw on.
      values: [rows, columns] in [0, 1].
      columns: their names.
      xlabel: what they are, where the axis has no name yet.
      most: what the darkest shade stands for, the same for all panels of a figure.
    """
    shades = {"cmap": style.SHADES, "vmin": 0, "vmax": most}
    image = axes.imshow(values, **shades, aspect="auto", interpolation="none")
    axes.grid(False)
    axes.set_xticks(range(values.shape[1]), columns)
    axes.set_xlabel(xlabel or axes.get_xlabel())
    axes.yaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    for spine in axes.spines.values():
        spine.set_visible(True)
    return image


def scale(figure: Figure, image: AxesImage, axes: list[Axes], label: str) -> None:
    """What the shades mean, right of the panels."""
    _, most = image.get_clim()
    ticks = [0, most / 2, most]
    bar = figure.colorbar(image, ax=axes, aspect=25, pad=0.015, ticks=ticks)
    bar.set_label(label)


def at_rounds(
    given: Inputs, run: dict, what: str, rounds: Sequence[int] | None
) -> dict[int, pd.DataFrame]:
    """What a run's first seed recorded as `what`_..., by round: of all of them, or of these.

    Raises:
      DataError: if one of them was not recorded, or none at all.
    """
    mine = given.recorded(run, what, seed=given.exhibit["seeds"][0])
    recorded = sorted(set(mine["round"].astype(int)))
    missing = [number for number in rounds or [] if number not in recorded]
    if missing:
        there = ", ".join(map(str, recorded))
        raise DataError(
            f"{exhibits.name(run)} recorded no {what} at round {missing[0]}; there are {there}"
        )
    return {number: exhibits.pick(mine, round=number) for number in rounds or recorded}


def panels(titles: list[list[str]], height: float | None = None) -> tuple[Figure, list[Axes]]:
    """`canvas.panels` in rows of these titles, of which some may be shorter than others."""
    columns = max(map(len, titles))
    padded = [title for row in titles for title in row + [None] * (columns - len(row))]
    return canvas.panels(padded, "Expert", columns=columns, height=height)


def experts(number: int) -> list[str]:
    """Names of so many columns of experts, counted from 1."""
    return [str(expert + 1) for expert in range(number)]


def of_run(exhibit: dict, run: dict) -> str:
    """Lines with a run and its federation before the name of an axis, where there are several."""
    federations = {federation["name"]: federation for federation in exhibit["federations"]}
    names = [federations[run["federation"]]["title"]] if len(federations) > 1 else []
    names += [run["title"]] if len(exhibits.titles(exhibit)) > 1 else []
    return "".join(f"{name}\n" for name in names)
