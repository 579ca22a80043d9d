"""Mixture weights of every client, one row of panels per method."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.report import exhibits
from fedlib.report.figures import canvas, stacks
from fedlib.report.inputs import Inputs
from fedlib.report.metrics import PRIMARY


def draw(given: Inputs) -> Figure:
    """The figure, after the last round, of the first seed; runs without weights are left out.

    Seeds cannot be averaged, because an expert's number means nothing across seeds.
    """
    exhibit = given.exhibit
    shown = exhibits.pick(given.client_rows, at="last", **PRIMARY._asdict())
    shown = shown[shown["seed"] == exhibit.seeds[0]]
    weights = _weights(shown)
    rows = {
        f"{title}, {federation.title}": exhibits.pick(
            weights, label=label, federation=federation.name
        )
        for label, title in exhibits.titles(exhibit).items()
        for federation in exhibit.federations
    }
    found = {title: mine for title, mine in rows.items() if len(mine)}
    names = [*found] or ["None has mixture weights"], "Client, sorted", "Mixture weight"
    columns = min(len(exhibit.federations), canvas.MAX_COLUMNS)
    figure, grid = canvas.panels(*names, columns=columns, height=1.7)
    for axes, mine in zip(grid, found.values(), strict=False):
        _draw(axes, mine[_experts(mine)].dropna(axis="columns").to_numpy())
    number = int(weights[_experts(weights)].notna().any().sum())
    handles = stacks.handles([f"expert {expert + 1}" for expert in range(number)])
    seed = canvas.first_seed_note(exhibit, "experts of different seeds do not correspond")
    return canvas.finish(figure, exhibit, handles, "After the last round.", seed)


def _experts(frame: pd.DataFrame) -> list[str]:
    return [column for column in frame if column.startswith("pi_")]


def _weights(clients: pd.DataFrame) -> pd.DataFrame:
    """The rows of clients that have mixture weights; none if the file has no such column."""
    experts = _experts(clients)
    return clients[clients[experts].notna().any(axis=1)] if experts else clients.iloc[:0]


def _draw(axes: Axes, pi: np.ndarray) -> None:
    """Draw the weights of clients [C, E], sorted by main expert, then by its weight."""
    order = np.lexsort((-pi.max(axis=1), pi.argmax(axis=1)))
    stacks.draw(axes, pi[order], np.arange(len(pi) + 1) + 0.5)
    axes.set_ylim(0, 1)
    axes.locator_params("x", integer=True)
