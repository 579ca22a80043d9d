"""How many clients choose each expert at the end, the most popular expert first.

One panel per federation, with the variants of a run (such as with and without exploration) side by
side.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.errors import DataError
from fedlib.report import diagnostics, exhibits
from fedlib.report.figures import canvas, ranked, style
from fedlib.report.inputs import Inputs
from fedlib.spec import Run

EVEN = {"color": style.GREY, "linestyle": style.DOTTED, "linewidth": 1.0}

CHOICE = "Choice of the clients that train after the last round; every seed has its own order."


def draw(given: Inputs) -> Figure:
    """The figure.

    Raises:
      ConfigError: if a federation has two runs of one variant, or a run does not state `experts`.
      DataError: if a client of a run has not chosen one of its experts.
    """
    exhibit = given.exhibit
    color = style.protocol_look("ifca").color
    figure, grid = canvas.by_federation(exhibit, "Cluster, most popular first", "Clients")
    for axes, federation in grid:
        counts = ranked.by_label(given, federation.name, _counts)
        ranked.draw_bars(axes, counts, color)
        axes.axhline(counts[0][0].sum() / counts[0].shape[1], **EVEN)
        axes.locator_params("y", integer=True)
    even = Line2D([], [], label="even use", **EVEN)
    handles = [*ranked.handles(exhibit, color), even]
    return ranked.finish(figure, exhibit, handles, CHOICE)


def _counts(clients: pd.DataFrame, run: Run) -> np.ndarray:
    """Clients per expert in descending order, of each seed -> [seeds, E]"""
    number = int(exhibits.setting("num_experts", run))
    chosen = diagnostics.column(clients, "choice")
    if chosen.min() < 0 or chosen.max() >= number:
        name = exhibits.name(run)
        raise DataError(f"choice of {name} must be in [0, {number - 1}], one of its experts")
    found = [
        np.sort(np.bincount(of_seed, minlength=number))[::-1]
        for _, of_seed in pd.Series(chosen).groupby(clients["seed"].to_numpy())
    ]
    return np.stack(found).astype(float)
