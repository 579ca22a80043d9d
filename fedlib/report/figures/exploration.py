"""The experts that the clients of a round train, as shares over the rounds of one seed.

A row of panels per run, a column per federation.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.figures import canvas, stacks, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics import PICKS

WINDOWS = 40  # approximate number of steps on the x axis; a single round has few clients


@style.styled()
def draw(given: Inputs) -> Figure:
    """The figure, of the first seed; the expert trained most over the run is at the bottom.

    Raises:
      DataError: if a run did not record its choices.
    """
    exhibit = given.exhibit
    places = [
        (federation, run)
        for label in exhibits.titles(exhibit)
        for federation, run in given.runs
        if run["label"] == label
    ]
    titles = [f"{federation['title']}, {run['title']}" for federation, run in places]
    names = "Communication round", "Share of picks (%)"
    figure, grid = canvas.panels(titles, *names, columns=len(exhibit["federations"]), height=1.7)
    most, window = 0, 1
    for axes, (_, run) in zip(grid, places, strict=True):
        rounds, picks = _picks(given.recorded(run, PICKS, seed=exhibit["seeds"][0]))
        window = max(window, -(-len(rounds) // WINDOWS))
        _draw_shares(axes, rounds, picks)
        most = max(most, picks.shape[1])
    others = [f"cluster {rank}" for rank in range(2, most + 1)]
    handles = stacks.handles(["most trained cluster", *others])
    windows = f"Steps of up to {window} rounds." if window > 1 else ""
    seed = canvas.first_seed_note(exhibit, "clusters of different seeds do not correspond")
    return canvas.finish(figure, exhibit, handles, windows, seed)


def _picks(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Rounds in which clients chose [R], and choices of each expert [R, E]."""
    table = rows.pivot_table("value", "round", "metric")
    names = sorted(table, key=lambda name: int(name.removeprefix(f"{PICKS}_")))
    chose = table[names].sum(axis=1) > 0  # not after an early stop
    if not chose.any():
        raise DataError(f"{exhibits.name(rows.iloc[0])}: no client ever chose an expert")
    table = table.loc[chose, names]
    return table.index.to_numpy(), table.to_numpy()


def _draw_shares(axes: Axes, rounds: np.ndarray, picks: np.ndarray) -> None:
    """Stacked shares in steps of a few rounds, the expert with most picks at the bottom."""
    parts = np.array_split(np.arange(len(rounds)), min(WINDOWS, len(rounds)))
    totals = np.stack([picks[part].sum(axis=0) for part in parts])
    shares = totals / totals.sum(axis=1, keepdims=True)
    shares = shares[:, np.argsort(-picks.sum(axis=0), kind="stable")]
    edges = np.array([*(rounds[part[0]] for part in parts), rounds[-1] + 1]) - 0.5
    stacks.draw(axes, shares, edges)
    canvas.rounds_axis(axes)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}")
