"""Mean gate weight of each expert over clients: the shared experts, then the clients' own.

One panel per federation. Shared experts are ordered by weight, because their numbers mean nothing
across seeds; an unused expert has weight 0.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.figures import canvas, ranked, style
from fedlib.report.inputs import Inputs
from fedlib.spec import Run

MEAN_WEIGHT = (
    "Mean over the test examples of each of the clients that train, then over clients; an expert "
    "that no client uses counts 0. Every seed has its own order."
)


def draw(given: Inputs) -> Figure:
    """The figure.

    Raises:
      ConfigError: unless a federation has one run of each variant, and every run states `experts`.
      DataError: if no client of a run has weights.
    """
    exhibit = given.exhibit
    color = style.protocol_look("moe").color
    names = "Expert, shared ones by weight", "Mean weight of the gate"
    figure, grid = canvas.by_federation(exhibit, *names)
    for axes, federation in grid:
        values = ranked.by_label(given, federation.name, _weights)
        most = max(found.shape[1] for found in values) - 1
        ranked.draw_bars(axes, [padded(found, most) for found in values], color)
        axes.axvline(most + 0.5, color=style.GREY, linewidth=0.8)
        axes.set_xticks(range(1, most + 2), [*map(str, range(1, most + 1)), "local"])
    return ranked.finish(figure, exhibit, ranked.handles(exhibit, color), MEAN_WEIGHT)


def _weights(clients: pd.DataFrame, run: Run) -> np.ndarray:
    """Mean weights, of shared experts in descending order, the local one last -> [seeds, E + 1]"""
    number = int(exhibits.setting("num_experts", run))
    clients = clients[clients["count"] > 0]  # weights are means over test examples
    columns = [f"gate_weights_{expert}" for expert in range(number + 1)]
    # Clients without a mixture have no weights.
    having = clients.reindex(columns=["seed", *columns]).dropna(how="all", subset=columns)
    missing = {*columns} - {*clients} or {*clients["seed"]} - {*having["seed"]}
    if missing or having.empty:
        raise DataError(
            f"the clients of {exhibits.name(run)} have no {columns[0]} to "
            f"{columns[-1]}; run its evaluation and the metrics stage again"
        )
    means = having.fillna(0.0).groupby("seed").mean().to_numpy()
    return np.concatenate([-np.sort(-means[:, :-1], axis=1), means[:, -1:]], axis=1)


def padded(values: np.ndarray, experts: int) -> np.ndarray:
    """`values` with columns of 0 before the last, so that all variants have `experts` experts."""
    missing = experts + 1 - values.shape[1]
    return np.insert(values, [values.shape[1] - 1] * missing, 0.0, axis=1)
