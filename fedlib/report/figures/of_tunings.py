"""Figures of the luck of tuning: ranks of methods with intervals, and expected bests of trials."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.report import luck, statistics
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs

ROW = 0.27  # inches
MEAN = {"marker": "D", "markersize": 6, "color": "black", "linestyle": ""}
TUNINGS = {"color": "#0072B2", "linewidth": 5, "solid_capstyle": "butt"}
DATASETS = {"color": "#6E6E6E", "linewidth": 1.2, "solid_capstyle": "butt"}


def rank_intervals(given: Inputs) -> Figure:
    """The rank of each method by its mean accuracy, the highest on top."""
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


def best_of_trials(given: Inputs) -> Figure:
    """The expected best validation accuracy by number of trials."""
    exhibit, rows, looks = given.exhibit, given.kind.rows, style.looks(given.exhibit)
    label = {row["title"]: row["labels"][0] for row in rows if row.get("again")}
    figure, [axes] = canvas.panels([""], "Trials", "Validation accuracy (%)", columns=1, height=3)
    handles = []
    for title, curve in luck.trials(given, rows).items():
        look = looks[label[title]].curve()
        first, every = style.markers(exhibit.runs, label[title], len(curve))
        axes.plot(np.arange(1, len(curve) + 1), curve, markevery=(first, every), **look)
        handles.append(Line2D([], [], label=title, **look))
    canvas.rounds_axis(axes)
    canvas.percent_axis(axes)
    return canvas.finish(
        figure,
        exhibit,
        handles,
        "Expected highest validation accuracy of the seen clients after the last round if only so "
        "many of the trials had been made, the mean over federations; trials of all tunings "
        "together, of which a diverged one counts as 0.",
    )
