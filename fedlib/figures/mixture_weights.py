"""Mixture weights of every client: which experts it relies on, one row of panels per method."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.metrics import PRIMARY
from fedlib.figures import layout, style


@style.styled
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
) -> Figure:
    """The figure, after the last round, of the first seed; runs without weights are left out.

    Seeds cannot be averaged: an expert's number means nothing from one seed to the next.
    """
    shown = exhibits.pick(exhibits.select(exhibit, clients), at="last", **PRIMARY._asdict())
    shown = shown[shown["seed"] == exhibit["seeds"][0]]
    weights = _weights(shown)
    labels = [label for label in exhibits.titles(exhibit) if (weights["label"] == label).any()]
    federations = exhibit["federations"]
    shown = [(label, federation) for label in labels for federation in federations]
    titles = [f"{exhibits.titles(exhibit)[label]}, {f['title']}" for label, f in shown]
    columns = min(len(federations), layout.MAX_COLUMNS)
    about = {"columns": columns, "height": 1.7}
    names = "Client, sorted", "Mixture weight"
    figure, grid = layout.panels(titles or ["None has mixture weights"], *names, **about)
    for axes, (label, federation) in zip(grid, shown, strict=False):
        mine = exhibits.pick(weights, label=label, federation=federation["name"])
        _draw_bars(axes, mine[_experts(mine)].dropna(axis="columns").to_numpy())
    number = int(weights[_experts(weights)].notna().any().sum())
    handles = [Patch(color=_color(e), label=f"expert {e + 1}") for e in range(number)]
    seed = f"Seed {exhibit['seeds'][0]} only: experts of different seeds do not correspond."
    note = f"After the last round. {seed}" if len(exhibit["seeds"]) > 1 else "After the last round."
    layout.finish(figure, exhibit, handles, note)
    return figure


def _experts(frame: pd.DataFrame) -> list[str]:
    return [column for column in frame if column.startswith("pi_")]


def _weights(clients: pd.DataFrame) -> pd.DataFrame:
    """The rows of clients that have mixture weights; none if the file has no such column."""
    experts = _experts(clients)
    return clients[clients[experts].notna().any(axis=1)] if experts else clients.iloc[:0]


def _color(expert: int) -> str:
    return style.PALETTE[expert % len(style.PALETTE)]


def _draw_bars(axes: Axes, pi: np.ndarray) -> None:
    """One bar per client, experts stacked; clients sorted by main expert, then by its weight.

    Thousands of clients are one shape per expert: rectangles of each take long to draw.
    """
    axes.grid(False)
    if not pi.size:
        axes.text(0.5, 0.5, "no such run", ha="center", transform=axes.transAxes)
        return
    order = np.lexsort((-pi.max(axis=1), pi.argmax(axis=1)))
    pi, position, bottom = pi[order], np.arange(1, len(pi) + 1), np.zeros(len(pi))
    bar = {"width": 1.0, "edgecolor": "white", "linewidth": 0.3 if len(pi) < 60 else 0}
    edges, solid = np.arange(len(pi) + 1) + 0.5, {"fill": True, "linewidth": 0}
    for expert, weight in enumerate(pi.T):
        top, color = bottom + weight, {"color": _color(expert)}
        if len(pi) > style.CROWDED:
            axes.stairs(top, edges, baseline=bottom, **solid, **color)
        else:
            axes.bar(position, weight, bottom=bottom, **bar, **color)
        bottom = top
    axes.set(xlim=(0.5, len(pi) + 0.5), ylim=(0, 1))
    axes.xaxis.get_major_locator().set_params(integer=True)
