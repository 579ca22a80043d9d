"""alpha over the rounds, what weighs routed experts against the main one; printed ends beside it.

Source: J. Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025, Equation 1, and section 5.2 for what it learns.
"""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.exhibits import published as printed
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.alphas import ALPHA, recorded
from fedlib.exhibits.metrics import over_seeds
from fedlib.figures import curves, style

PRINTED = {"color": style.GREY, "linestyle": style.DASHED, "linewidth": 1.1}


@style.styled
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
) -> Figure:
    """The figure, a panel per federation: mean over seeds, and a band.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.

    Raises:
      DataError: if a run did not record its alpha.
    """
    theirs = printed.fractions(published, exhibit["published"], ALPHA)
    looks = style.looks(exhibit["runs"])
    figure, grid = style.panels(exhibit)
    panels = {f["name"]: axes for f, axes in zip(exhibit["federations"], grid, strict=True)}
    marked = False
    for federation, run, alpha in recorded(exhibit, metrics):
        axes, curve = panels[federation["name"]], over_seeds(alpha, ["label", "round"])
        curves.draw_curve(axes, curve, looks[run["label"]], exhibit["runs"])
        number = theirs.get((federation["dataset"], run["label"]))
        if number is not None:
            axes.axhline(number, **PRINTED)
            marked = True
    for federation in exhibit["federations"]:
        axes = panels[federation["name"]]
        axes.set(title=federation["title"], xlabel="Communication round", ylabel="α")
        axes.set_ylim(0, 1)
        axes.xaxis.get_major_locator().set_params(integer=True)
    handles = style.method_handles(exhibit)
    handles += [Line2D([], [], label="published, learned", **PRINTED)] if marked else []
    style.legend(figure, handles)
    sentences = exhibits.published_note(exhibit, shown=marked)
    style.footer(figure, exhibit, style.spread_text(exhibit, "band"), *sentences)
    return figure
