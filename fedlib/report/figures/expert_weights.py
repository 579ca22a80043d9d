"""Gate weight of the client's own expert, of two experts: a histogram, and means by class.

Two panels per run: the distribution of the local expert's weight over all test examples of the
clients, and its mean over each client's test examples of each class.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.errors import DataError
from fedlib.report import diagnostics
from fedlib.report.figures import canvas, heat, style
from fedlib.report.inputs import Inputs


def draw(given: Inputs) -> Figure:
    """The figure, of one seed.

    Raises:
      DataError: if the clients of a run have no gate weights.
    """
    exhibit = given.exhibit
    figure, grid = canvas.panels(np.repeat(canvas.by_run(exhibit), 2).tolist(), columns=2)
    for run, histogram, by_class in zip(exhibit.runs, grid[::2], grid[1::2], strict=True):
        mine = diagnostics.of_seed(given, run, exhibit.seeds[0])
        look = style.method_look(run.method)
        draw_histogram(histogram, diagnostics.matrix(mine, "local_weight_bins"), look.color)
        image = draw_means(by_class, _by_class(mine), diagnostics.names(mine))
    heat.scale(figure, image, grid[1::2], "mean weight of the local expert")
    return canvas.finish(
        figure,
        exhibit,
        [],
        canvas.first_seed_note(exhibit),
        "After the last round, test examples of the clients that train. The weights of the local "
        "and the global expert sum to 1. Bars: all clients together. Grey: the client has no "
        "test examples of the class.",
    )


def _by_class(clients: pd.DataFrame) -> np.ndarray:
    """Mean weights on test examples of each class, NaN where a client has none -> [C, L]

    Up to the last class that any client has: those after it may be of other runs' data.

    Raises:
      DataError: if no client has any.
    """
    values = clients[diagnostics.column_names(clients, "local_weights")]
    there = values.columns[values.notna().any()]
    if there.empty:
        raise DataError(f"the run has no local_weights_0, ...; {diagnostics.ADVICE}")
    return values.loc[:, : there[-1]].to_numpy()


def draw_histogram(axes: Axes, counts: np.ndarray, color: str) -> None:
    """Shares of all clients' examples as bars; counts [C, bins]."""
    edges = np.linspace(0, 1, counts.shape[1] + 1)
    axes.stairs(counts.sum(0) / counts.sum(), edges, fill=True, color=color)
    axes.set(xlim=(0, 1), xlabel="Weight of the local expert", ylabel="Test examples (%)")
    axes.set_ylim(bottom=0)
    canvas.percent_axis(axes)


def draw_means(axes: Axes, values: np.ndarray, clients: list[str]):
    """Draw the matrix of clients by classes [C, L], with NaN in grey."""
    every = 1 if values.shape[1] <= 10 else 10
    names = ["" if label % every else str(label) for label in range(values.shape[1])]
    axes.set_ylabel("Client")
    return heat.draw(axes, np.ma.masked_invalid(values), names, "Class", rows=canvas.short(clients))
