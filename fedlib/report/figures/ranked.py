"""Bars of experts ordered by use, which makes seeds comparable.

Across seeds an expert's number means nothing, but its rank does.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedlib.errors import ConfigError
from fedlib.report import comparisons, exhibits
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics import PRIMARY
from fedlib.spec import ExhibitSpec, Run

FILLS = (1.0, 0.35, 0.15)  # opacity of the variants


def by_label(
    given: Inputs, federation: str, measure: Callable[[pd.DataFrame, Run], np.ndarray]
) -> list[np.ndarray]:
    """`measure(clients, run)` of the seen clients of each label -> [[seeds, E]]

    Raises:
      ConfigError: if the federation does not have exactly one run of each label.
    """
    shown = exhibits.pick(given.client_rows, at="last", federation=federation, **PRIMARY._asdict())
    runs = {run.label: run for run in exhibits.runs_of(given.exhibit, federation)}
    titles = exhibits.titles(given.exhibit)
    if runs.keys() != titles.keys():
        raise ConfigError(
            f"{federation} must have one run of each variant ({', '.join(titles.values())}), got "
            f"{', '.join(runs)}"
        )
    return [measure(exhibits.pick(shown, label=label), runs[label]) for label in titles]


def finish(figure: Figure, exhibit: ExhibitSpec, entries: list, what: str) -> Figure:
    """Add the legend, and notes about bars and whiskers."""
    whisker = canvas.spread_text(exhibit, "whisker")
    notes = comparisons.selection_note(exhibit)
    return canvas.finish(figure, exhibit, entries, what, whisker, *notes)


def draw_bars(axes: Axes, values: list[np.ndarray], color: str) -> None:
    """Draw groups of bars at 1, 2, ...: means over seeds, whiskers from smallest to largest.

    Args:
      values: [seeds, E] for each variant; fewer columns for a variant with fewer experts.
      color: of all bars.
    """
    width = 0.8 / len(values)
    for number, found in enumerate(values):
        offset = (number - (len(values) - 1) / 2) * width
        x, mean = np.arange(1, found.shape[1] + 1) + offset, found.mean(axis=0)
        axes.bar(x, mean, width, **bar(number, color))
        if len(found) > 1:
            spread = [mean - found.min(axis=0), found.max(axis=0) - mean]
            axes.errorbar(x, mean, spread, linestyle="None", **style.WHISKER)
    most = max(found.shape[1] for found in values)
    axes.set(xlim=(0.4, most + 0.6), ylim=(0, None), xticks=range(1, most + 1))
    axes.grid(False, axis="x")


def bar(number: int, color: str) -> dict:
    """Keyword arguments for a bar or patch of variant `number`."""
    return {"facecolor": (color, FILLS[number % len(FILLS)]), "edgecolor": color, "linewidth": 0.8}


def handles(exhibit: ExhibitSpec, color: str) -> list[Patch]:
    """Legend entries of the labels."""
    titles = exhibits.titles(exhibit).values()
    return [Patch(label=title, **bar(number, color)) for number, title in enumerate(titles)]
