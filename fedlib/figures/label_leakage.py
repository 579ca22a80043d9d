"""What a client's first update tells of its labels: a small panel per client, true and recovered.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, figures 9 and 10;
specification section 7.5.
"""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedlib.errors import ConfigError
from fedlib.exhibits import leakage, of_clients
from fedlib.figures import style

TRUE, RECOVERED = "#CC3311", "#0077BB"
COLORS = {"true share": TRUE, "reconstruction": RECOVERED}
WIDTH = 0.42  # of a bar; the two of a label stand side by side
NAME = {"fontsize": 7, "labelpad": 1}
NUMBER = {"loc": "right", "fontsize": 7, "fontweight": "normal", "color": style.GREY, "pad": 1}
WIDTH_ALL, PANEL_WIDTH, PANEL_ASPECT = 4.8, 0.95, 0.82  # inches; aspect is height / width


@style.styled
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    recovered: str = "recovered",
    labels: str = "labels",
    most: int = 100,
    seed: int | None = None,
) -> Figure:
    """The figure, of one run and seed: clients in reading order, in a grid close to a square.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.
      recovered, labels: of which columns of the clients ("recovered_0", ...), shares in [0, 1].
      most: how many clients are shown, the first ones.
      seed: the exhibit's first if not given.

    Raises:
      ConfigError: if the exhibit has more than one run, does not have the seed, or `most` is below
        1.
      DataError: if the clients have no such columns.
    """
    run, seed = _only_run(exhibit, most), of_clients.seed_of(exhibit, seed)
    mine = of_clients.clients_of(exhibit, clients, run, seed)
    true, guess = of_clients.matrix(mine, labels), of_clients.matrix(mine, recovered)
    number = min(most, len(mine))
    columns = math.ceil(math.sqrt(number))
    width = max(PANEL_WIDTH, WIDTH_ALL / columns)
    figure, grid = style.panels(exhibit, number, columns, PANEL_ASPECT * width, width)
    bottom = min(0.0, float(guess[:number].min()))  # one step may leave shares below 0
    for place, axes in enumerate(grid):
        _draw_shares(axes, true[place], guess[place], bottom)
        axes.set_title(mine["client"].iloc[place], **NUMBER)
        if place % columns == 0:
            axes.set_yticks([0, 1])
            axes.set_ylabel("Share", **NAME)
        if place + columns >= number:
            axes.set_xticks([0, true.shape[1] - 1])
            axes.set_xlabel("Label", **NAME)
    style.legend(figure, [Patch(color=color, label=label) for label, color in COLORS.items()])
    several = len(exhibit["seeds"]) > 1
    style.footer(
        figure,
        exhibit,
        f"Seed {seed} only." if several else "",
        "A panel per client, with its number: the share of each label among its training examples.",
        f"Of all {len(mine)} clients: mean total variation "
        f"{leakage.total_variation(guess, true).mean():.3f}, correlation "
        f"{leakage.correlation(guess, true):.3f}.",
    )
    return figure


def _only_run(exhibit: dict, most: int) -> dict:
    """The run of the exhibit; ConfigError if there are several, or nobody is to be shown."""
    if len(exhibit["runs"]) != 1 or most < 1:
        raise ConfigError(
            f"{exhibit['name']} must show one run and at least one client, got "
            f"{len(exhibit['runs'])} runs and most = {most}"
        )
    return exhibit["runs"][0]


def _draw_shares(axes: Axes, true: np.ndarray, guess: np.ndarray, bottom: float) -> None:
    x = np.arange(len(true))
    axes.bar(x - WIDTH / 2, true, WIDTH, color=TRUE)
    axes.bar(x + WIDTH / 2, guess, WIDTH, color=RECOVERED)
    axes.set(xlim=(-0.7, len(true) - 0.3), ylim=(bottom, 1.02), xticks=[], yticks=[])
    axes.grid(False)
    axes.tick_params(labelsize=7, length=2, pad=1)
