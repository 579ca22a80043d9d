"""Weights of clients in experts, and of experts in clients: a matrix for each of some rounds.

Above, every column of Wʳ sums to 1 over the clients of the round; below, every row of Wᶜ sums to 1
over the experts.

Source: J. Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025, Equations 5 and 12; the paper shows no such figure.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from fedlib.report.figures import canvas, heat, style
from fedlib.report.inputs import Inputs

DARK = 0.55  # numbers in cells with larger values are white
WEIGHTS = {"client_weights": "$W^r$", "sync_weights": "$W^c$"}
MEANING = (
    "Of Wʳ columns sum to 1: what an expert takes from each client of the round. Of Wᶜ rows do: "
    "what a client takes from each expert; 0 is the main expert."
)


@style.styled()
def draw(given: Inputs) -> Figure:
    """The figure, two rows of panels per run, of one seed: other seeds have other cohorts.

    Raises:
      DataError: if a run recorded no weights, or none in one of the rounds.
    """
    exhibit, rounds = given.exhibit, given.kind.rounds or {}
    rows = [
        (run, what, heat.at_rounds(given, run, what, rounds.get(run["federation"])))
        for run in exhibit["runs"]
        for what in WEIGHTS
    ]
    titles = [[f"{WEIGHTS[what]}, round {number}" for number in found] for _, what, found in rows]
    figure, grid = heat.panels(titles, height=1.6)
    free = iter(grid)
    for run, what, found in rows:
        main = what == "sync_weights" and run["params"].get("num_main", 1) > 0
        for number, (cells, axes) in enumerate(zip(found.values(), free, strict=False)):
            image = _draw(axes, heat.table(cells), main)
            axes.set_ylabel("" if number else f"{heat.of_run(exhibit, run)}Client")
    heat.scale(figure, image, grid, "Weight")
    seed = canvas.first_seed_note(exhibit, "other seeds have other cohorts")
    return canvas.finish(figure, exhibit, [], seed, MEANING)


def _draw(axes: Axes, weights: pd.DataFrame, main: bool) -> AxesImage:
    """The weights [C, E] of a round's clients, clients in ascending order."""
    names = heat.experts(weights.shape[1] - main) + (["0"] if main else [])
    image = heat.draw(axes, weights.to_numpy(), names)
    axes.set_yticks(range(len(weights)), list(map(str, weights.index)))
    for (row, column), value in np.ndenumerate(weights.to_numpy()):
        color = "white" if value > DARK else "#262626"
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=6, color=color)
    return image
