"""Matrices of probabilities as panels of a figure: a column per expert, 0 is white."""

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
    """Draw one matrix, its first row on top, with the same colours in all such panels.

    Args:
      axes: the panel.
      values: [rows, columns] in [0, 1].
      columns: names of the columns.
      xlabel: name of the x axis; "" leaves it unchanged.
      most: value of the darkest shade, the same for all panels of a figure.
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
    """Draw the colour bar, right of the panels."""
    _, most = image.get_clim()
    ticks = [0, most / 2, most]
    bar = figure.colorbar(image, ax=axes, aspect=25, pad=0.015, ticks=ticks)
    bar.set_label(label)


def at_rounds(
    given: Inputs, run: dict, what: str, rounds: Sequence[int] | None
) -> dict[int, pd.DataFrame]:
    """Records `what`_... of a run's first seed, by round: all recorded rounds, or `rounds`.

    Raises:
      DataError: if one of the rounds, or any round at all, is not recorded.
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


def table(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells "..._{row}_{expert}" of one round -> [rows, E]"""
    places = cells["metric"].str.extract(r"_(\d+)_(\d+)$").astype(int)
    return cells.assign(row=places[0], expert=places[1]).pivot(
        index="row", columns="expert", values="value"
    )


def panels(titles: list[list[str]], height: float | None = None) -> tuple[Figure, list[Axes]]:
    """`canvas.panels` in rows of these titles; rows may differ in length."""
    columns = max(map(len, titles))
    padded = [title for row in titles for title in row + [None] * (columns - len(row))]
    return canvas.panels(padded, "Expert", columns=columns, height=height)


def experts(number: int) -> list[str]:
    """Names of the columns of `number` experts, counted from 1."""
    return [str(expert + 1) for expert in range(number)]


def of_run(exhibit: dict, run: dict) -> str:
    """Lines for the name of an axis: the run and its federation, where there are several."""
    federations = {federation["name"]: federation for federation in exhibit["federations"]}
    names = [federations[run["federation"]]["title"]] if len(federations) > 1 else []
    names += [run["title"]] if len(exhibits.titles(exhibit)) > 1 else []
    return "".join(f"{name}\n" for name in names)
