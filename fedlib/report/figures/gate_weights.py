"""How much a gate relies on each expert, averaged over clients: shared ones, then clients' own.

One panel per federation. Shared experts are in the order of their weights, as their numbers mean
nothing from one seed to the next; an expert that nobody uses has weight 0.
"""

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.errors import DataError
from fedlib.report import comparisons, exhibits
from fedlib.report.figures import layout, ranked, style
from fedlib.report.metrics import PRIMARY


@style.styled()
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    weights: str = "gate_weights",
    experts: str = "num_experts",
    variants: dict | None = None,
    group: str = PRIMARY.group,
) -> Figure:
    """The figure.

    Args:
      weights: of which columns of the clients ("gate_weights_0", ...); the one after the shared
        experts is the client's own expert.
      experts: hyper-parameter that says how many shared experts a run has, a dotted path into its
        params.
      variants: see `fedlib.report.comparisons.variants`; by labels if not given.
      group: "seen" or "unseen" clients.

    Raises:
      ConfigError: if a federation has not one run of each variant, or a run does not state
        `experts`.
      DataError: if no client of a run has weights.
    """
    kinds = comparisons.variants(exhibit, variants)
    shown = ranked.at_the_end(exhibit, clients, group)
    shown = shown[shown["count"] > 0]  # weights are means over test examples
    measure = partial(_weights, weights=weights, experts=experts)
    color = style.protocol_look("moe").color
    names = "Expert, shared ones by weight", "Mean weight of the gate"
    figure, grid = layout.by_federation(exhibit, *names)
    for axes, federation in grid:
        values = ranked.of_variants(exhibit, shown, federation["name"], kinds, measure)
        most = max(found.shape[1] for found in values) - 1
        ranked.draw_bars(axes, [_padded(found, most) for found in values], color)
        axes.axvline(most + 0.5, color=style.GREY, linewidth=0.8)
        axes.set_xticks(range(1, most + 2), [*map(str, range(1, most + 1)), "local"])
    what = (
        f"Mean over the test examples of each of the {comparisons.GROUPS[group]}, then over "
        "clients; an expert that no client uses counts 0. Every seed has its own order."
    )
    ranked.finish(figure, exhibit, ranked.handles(kinds.titles, color), what)
    return figure


def _weights(clients: pd.DataFrame, run: dict, weights: str, experts: str) -> np.ndarray:
    """Mean weights, of shared experts in descending order, the local one last -> [seeds, E + 1]"""
    number = int(exhibits.setting(experts, run))
    columns = [f"{weights}_{expert}" for expert in range(number + 1)]
    # Clients that have no mixture, where not all train on their own, have no weights either.
    having = clients.reindex(columns=["seed", *columns]).dropna(how="all", subset=columns)
    missing = {*columns} - {*clients} or {*clients["seed"]} - {*having["seed"]}
    if missing or having.empty:
        raise DataError(
            f"the clients of {run['federation']}/{run['label']} have no {columns[0]} to "
            f"{columns[-1]}; run its evaluation and the metrics stage again"
        )
    means = having.fillna(0.0).groupby("seed").mean().to_numpy()
    return np.concatenate([-np.sort(-means[:, :-1], axis=1), means[:, -1:]], axis=1)


def _padded(values: np.ndarray, experts: int) -> np.ndarray:
    """With columns of 0 before the last, so that every variant has so many shared experts."""
    missing = experts + 1 - values.shape[1]
    return np.insert(values, [values.shape[1] - 1] * missing, 0.0, axis=1)
