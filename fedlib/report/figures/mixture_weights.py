"""Mixture weights of every client, one row of panels per method."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedlib.report import diagnostics, exhibits
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.definitions import PRIMARY


def draw(given: Inputs) -> Figure:
    """The figure, after the last round, of the first seed; runs without weights are left out.

    Seeds cannot be averaged, because an expert's number means nothing across seeds.
    """
    exhibit = given.exhibit
    shown = exhibits.pick(given.client_rows, at="last", **PRIMARY._asdict())
    shown = shown[shown["seed"] == exhibit.seeds[0]]
    weights = shown[shown[diagnostics.column_names(shown, "pi")].notna().any(axis=1)]
    found = {}
    for label, title in exhibits.titles(exhibit).items():
        for federation in exhibit.federations:
            mine = exhibits.pick(weights, label=label, federation=federation.name)
            if len(mine):
                found[f"{title}, {federation.title}"] = mine
    names = [*found] or ["None has mixture weights"], "Client, sorted", "Mixture weight"
    columns = min(len(exhibit.federations), canvas.MAX_COLUMNS)
    figure, grid = canvas.panels(*names, columns=columns, height=1.7)
    number = int(weights[diagnostics.column_names(weights, "pi")].notna().any().sum())
    colors = style.palette(number)
    for axes, mine in zip(grid, found.values(), strict=False):
        _draw(axes, diagnostics.matrix(mine, "pi"), colors)
    handles = [Patch(color=color, label=f"expert {n}") for n, color in enumerate(colors, 1)]
    seed = canvas.first_seed_note(exhibit, "experts of different seeds do not correspond")
    return canvas.finish(figure, exhibit, handles, "After the last round.", seed)


def _draw(axes: Axes, pi: np.ndarray, colors: Sequence) -> None:
    """Draw the weights of clients [C, E], sorted by main expert, then by its weight."""
    order = np.lexsort((-pi.max(axis=1), pi.argmax(axis=1)))
    bottom, edges = np.zeros(len(pi)), np.arange(len(pi) + 1) + 0.5
    for color, weight in zip(colors, pi[order].T, strict=False):
        about = {"baseline": bottom, "fill": True, "linewidth": 0, "color": color}
        axes.stairs(bottom + weight, edges, **about)
        bottom = bottom + weight
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1))
    axes.grid(False)
    axes.locator_params("x", integer=True)
