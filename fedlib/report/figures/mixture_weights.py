"""Mixture weights of every client, one row of panels per method."""

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
    weights = shown[shown[diagnostics.numbered(shown, "pi")].notna().any(axis=1)]
    found = {}
    for label, title in exhibits.titles(exhibit).items():
        for federation in exhibit.federations:
            mine = exhibits.pick(weights, label=label, federation=federation.name)
            if len(mine):
                found[f"{title}, {federation.title}"] = mine
    names = [*found] or ["None has mixture weights"], "Client, sorted", "Mixture weight"
    columns = min(len(exhibit.federations), canvas.MAX_COLUMNS)
    figure, grid = canvas.panels(*names, columns=columns, height=1.7)
    for axes, mine in zip(grid, found.values(), strict=False):
        _draw(axes, diagnostics.matrix(mine, "pi"))
    number = int(weights[diagnostics.numbered(weights, "pi")].notna().any().sum())
    handles = [Patch(color=_color(part), label=f"expert {part + 1}") for part in range(number)]
    seed = canvas.first_seed_note(exhibit, "experts of different seeds do not correspond")
    return canvas.finish(figure, exhibit, handles, "After the last round.", seed)


def _draw(axes: Axes, pi: np.ndarray) -> None:
    """Draw the weights of clients [C, E], sorted by main expert, then by its weight."""
    order = np.lexsort((-pi.max(axis=1), pi.argmax(axis=1)))
    bottom, edges = np.zeros(len(pi)), np.arange(len(pi) + 1) + 0.5
    for expert, weight in enumerate(pi[order].T):
        about = {"baseline": bottom, "fill": True, "linewidth": 0, "color": _color(expert)}
        axes.stairs(bottom + weight, edges, **about)
        bottom = bottom + weight
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1))
    axes.grid(False)
    axes.locator_params("x", integer=True)


def _color(expert: int) -> str:
    return style.PALETTE[expert % len(style.PALETTE)]
