"""The rank of each method by its mean accuracy, with intervals over tunings and over data sets."""

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.report import luck, statistics
from fedlib.report.figures import canvas
from fedlib.report.inputs import Inputs

ROW = 0.27  # inches
MEAN = {"marker": "D", "markersize": 6, "color": "black", "linestyle": ""}
TUNINGS = {"color": "#0072B2", "linewidth": 5, "solid_capstyle": "butt"}
DATASETS = {"color": "#6E6E6E", "linewidth": 1.2}


def draw(given: Inputs) -> Figure:
    """The figure, the highest method on top."""
    again, _ = luck.accuracies(given, given.kind.rows)
    found = luck.ranks(again)
    height = 0.5 + ROW * len(found)
    figure, [axes] = canvas.panels([""], "Rank (1 is the highest)", columns=1, height=height)
    for y, row in enumerate(found.to_dict("records")):
        axes.plot([row["datasets_low"], row["datasets_high"]], [y, y], zorder=2, **DATASETS)
        axes.plot([row["low"], row["high"]], [y, y], zorder=3, **TUNINGS)
        axes.plot([row["rank"]], [y], zorder=4, **MEAN)
    axes.set_yticks(range(len(found)), found.index)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlim(0.7, len(found) + 0.3)
    axes.set_xticks(range(1, len(found) + 1))
    handles = [
        Line2D([], [], label="mean over all tunings", **MEAN),
        Line2D([], [], label="one tuning, drawn", **TUNINGS),
    ]
    if found["datasets_low"].notna().any():
        handles.append(Line2D([], [], label="and data sets, drawn", **DATASETS))
    return canvas.finish(
        figure,
        given.exhibit,
        handles,
        "By the mean test accuracy over federations, of the seen clients after the last round; "
        f"intervals of {100 * statistics.LEVEL:.0f} %.",
    )
