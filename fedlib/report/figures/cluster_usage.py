"""How many clients choose each expert at the end, the most popular expert first.

One panel per federation; the variants of a run, such as with and without exploration, side by side.
"""

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.errors import DataError
from fedlib.report import comparisons, exhibits
from fedlib.report.figures import layout, ranked, style
from fedlib.report.metrics import PRIMARY

EVEN = {"color": style.GREY, "linestyle": style.DOTTED, "linewidth": 1.0}


@style.styled()
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    experts: str = "num_experts",
    choice: str = "choice",
    variants: dict | None = None,
    group: str = PRIMARY.group,
) -> Figure:
    """The figure.

    Args:
      experts: hyper-parameter that says how many experts a run has, a dotted path into its params.
      choice: column of the clients with the expert of each, from 0 on.
      variants: see `fedlib.report.comparisons.variants`; by labels if not given.
      group: "seen" or "unseen" clients.

    Raises:
      ConfigError: if a federation has two runs of one variant, or a run does not state `experts`.
      DataError: if a client of a run has not chosen one of its experts.
    """
    kinds = comparisons.variants(exhibit, variants)
    shown = ranked.at_the_end(exhibit, clients, group)
    measure = partial(_counts, experts=experts, choice=choice)
    color = style.protocol_look("ifca").color
    figure, grid = layout.by_federation(exhibit, "Cluster, most popular first", "Clients")
    for axes, federation in grid:
        counts = ranked.of_variants(exhibit, shown, federation["name"], kinds, measure)
        ranked.draw_bars(axes, counts, color)
        axes.axhline(counts[0][0].sum() / counts[0].shape[1], **EVEN)
        axes.yaxis.get_major_locator().set_params(integer=True)
    even = Line2D([], [], label="even use", **EVEN)
    what = (
        f"Choice of the {comparisons.GROUPS[group]} after the last round; every seed has its own "
        "order."
    )
    ranked.finish(figure, exhibit, [*ranked.handles(kinds.titles, color), even], what)
    return figure


def _counts(clients: pd.DataFrame, run: dict, experts: str, choice: str) -> np.ndarray:
    """Clients per expert in descending order, of each seed -> [seeds, E]"""
    number, name = int(exhibits.setting(experts, run)), f"{run['federation']}/{run['label']}"
    if choice not in clients or clients.empty or clients[choice].isna().any():
        raise DataError(
            f"the clients of {name} have no {choice}; run its evaluation and the metrics stage "
            "again"
        )
    if not clients[choice].between(0, number - 1).all():
        raise DataError(f"{choice} of {name} must be in [0, {number - 1}], one of its experts")
    found = [
        np.sort(np.bincount(chosen.astype(int), minlength=number))[::-1]
        for _, chosen in clients.groupby("seed")[choice]
    ]
    return np.stack(found).astype(float)
