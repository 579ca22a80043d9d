"""The expected best validation accuracy by number of trials, the mean over federations."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.report import luck
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs


def draw(given: Inputs) -> Figure:
    """The figure."""
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
