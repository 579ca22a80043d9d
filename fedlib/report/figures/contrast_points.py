"""Methods compared over federations: the median difference and its interval, by method.

Each small point is a federation, in the colour of its data set. In the grey band two methods are
practically equal.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedlib.report import contrasts, statistics
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs

ROW = 0.3  # inches
BAND = "#E8E8E8"
SMALL = {"markersize": 3.6, "marker": "o", "linestyle": "", "zorder": 2}
POINT = {"markersize": 6, "marker": "D", "color": "black", "linestyle": "", "zorder": 4}


def draw(given: Inputs) -> Figure:
    """The figure: a panel for each method of comparison."""
    exhibit, kind = given.exhibit, given.kind
    values = contrasts.accuracies(given, kind.rows)
    found = contrasts.all_contrasts(values, kind.of, kind.against)
    others = [*dict.fromkeys(found["against"])]
    datasets = [*dict.fromkeys(one.dataset for one in exhibit.federations)]
    colors = dict(zip(datasets, style.palette(len(datasets)), strict=True))
    figure, grid = canvas.panels(
        [f"Against {other}" for other in others],
        "Difference of accuracies (points)",
        columns=len(others),
        height=0.9 + ROW * len(kind.of),
    )
    titles = [title for title in kind.of if title in {*found["title"]}]
    for axes, other in zip(grid, others, strict=True):
        _draw(axes, values, found[found["against"] == other], titles, colors)
    for axes in grid[1:]:
        axes.tick_params(labelleft=False)
    handles = [
        Line2D([], [], label="median and 95 % interval", **POINT),
        Patch(color=BAND, label="equal within a point"),
        *(_point(color, label=name) for name, color in colors.items()),
    ]
    return canvas.finish(
        figure,
        exhibit,
        handles,
        "A small point is a federation: the mean over its seeds of the paired difference.",
        "The median is the Hodges-Lehmann estimate; fewer than six federations give no interval.",
    )


def _draw(
    axes: Axes, values: pd.DataFrame, found: pd.DataFrame, titles: list[str], colors: dict
) -> None:
    """A panel: a line for each of `titles`, the first on top, empty if it is not compared here."""
    rope = 100 * statistics.ROPE
    axes.axvspan(-rope, rope, color=BAND, zorder=0)
    axes.axvline(0, color=style.GREY, linewidth=0.8, zorder=1)
    for row in found.to_dict("records"):
        y = titles.index(row["title"])
        differences = contrasts.subtract(values, row["title"], row["against"])
        for one in statistics.by_federation(differences).to_dict("records"):
            axes.add_line(_point(colors[one["dataset"]], 100 * one["value"], y))
        if not pd.isna(row["low"]):
            ends = [100 * row["low"], 100 * row["high"]]
            axes.plot(ends, [y, y], color="black", linewidth=1.4, zorder=3)
        axes.plot([100 * row["median"]], [y], **POINT)
    axes.set_yticks(range(len(titles)), titles)
    axes.set_ylim(len(titles) - 0.5, -0.5)
    axes.autoscale_view(scaley=False)
    axes.xaxis.set_major_formatter(lambda value, _: canvas.number(value))


def _point(color: str, x: float | None = None, y: int = 0, label: str = "") -> Line2D:
    where = ([], []) if x is None else ([x], [y])
    return Line2D(*where, color=color, label=label, **SMALL)
