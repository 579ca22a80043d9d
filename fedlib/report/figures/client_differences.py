"""Bars of each client's gain in accuracy: one method less the best of the others.

One panel per federation. The best of the others has the highest mean accuracy over clients, and is
the same for all clients; a client may do better still with another method.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.report import diagnostics, exhibits
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.definitions import PRIMARY

WORSE = 0.3  # opacity of a bar below 0


def draw(given: Inputs) -> Figure:
    """The figure: mean over seeds, a whisker from the smallest to the largest seed."""
    exhibit, of = given.exhibit, given.kind.of
    shown = exhibits.pick(given.client_rows, at="last", **PRIMARY._asdict())
    shown = shown[shown["count"] > 0]
    figure, grid = canvas.by_federation(exhibit, "", "Difference of accuracies (points)")
    for axes, federation in grid:
        mine = exhibits.pick(shown, federation=federation.name)
        runs = {run.label: run for run in exhibits.runs_of(exhibit, federation.name)}
        other, values = differences(mine, of)
        _draw_bars(axes, values, style.method_look(runs[of].method).color)
        one = mine[mine["client"].isin(values.columns)].drop_duplicates("client")
        canvas.name_clients(axes, diagnostics.names(one.sort_values("client")))
        title = f"{federation.title}\nbest other: {runs[other].title}"
        axes.set(title=title, xlabel="Client")
        axes.grid(False, axis="x")
        axes.yaxis.set_major_formatter(lambda value, _: canvas.number(100 * value))
    return canvas.finish(
        figure,
        exhibit,
        [],
        f"Accuracy of {exhibits.titles(exhibit).get(of, of)} on each client's own test examples, "
        "minus that of the best other, which is the method of highest mean "
        "accuracy over clients and seeds.",
        "After the last round.",
        canvas.spread_text(exhibit, "whisker"),
    )


def _draw_bars(axes: Axes, values: pd.DataFrame, color: str) -> None:
    """A bar per client, with a whisker over the seeds: values [seeds, clients]"""
    mean = values.mean()
    colors = [color if value >= 0 else (color, WORSE) for value in mean]
    positions = range(len(mean))
    axes.bar(positions, mean, color=colors, edgecolor=color, linewidth=0.8)
    if len(values) > 1:
        spread = [mean - values.min(), values.max() - mean]
        axes.errorbar(positions, mean, spread, linestyle="None", **style.WHISKER)
    for place in np.flatnonzero(mean == 0):
        axes.annotate("0", (place, 0), (0, 2), textcoords="offset points", ha="center")
    axes.axhline(0, color=style.GREY, linewidth=0.8)
    axes.use_sticky_edges = False  # else a line at the edge of the panel is cut
    axes.margins(y=0.12)  # room for a "0"
    axes.autoscale_view(scalex=False)


def differences(clients: pd.DataFrame, of: str) -> tuple[str, pd.DataFrame]:
    """The best other method's label, and the lead of `of` over it -> (label, [seeds, clients])"""
    values = clients.pivot_table("accuracy", "seed", ["label", "client"])
    best = values.mean().groupby("label").mean().drop(of).idxmax()
    return best, values[of] - values[best]
