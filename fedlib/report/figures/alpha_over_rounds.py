"""Alpha over the rounds, the weight of routed experts against the main one; printed ends beside it.

Source: J. Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025, Equation 1, and section 5.2 for learned values.
"""

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.report import exhibits
from fedlib.report.figures import canvas, curves, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics import over_seeds

ALPHA = "alpha"  # as a metric and a published metric
PRINTED = {"color": style.GREY, "linestyle": style.DASHED, "linewidth": 1.1}


@style.styled()
def draw(given: Inputs) -> Figure:
    """The figure, a panel per federation: mean over seeds, and a band over seeds.

    Raises:
      DataError: if a run did not record its alpha.
    """
    exhibit = given.exhibit
    theirs = given.printed(ALPHA)
    looks = style.looks(exhibit)
    figure, grid = canvas.by_federation(exhibit, "Communication round", "α")
    panels = {federation["name"]: axes for axes, federation in grid}
    marked = False
    for federation, run in given.runs:
        axes = panels[federation["name"]]
        curve = over_seeds(given.recorded(run, ALPHA), ["label", "round"])
        curves.draw_curve(axes, curve, looks[run["label"]], exhibit["runs"])
        number = theirs.get((federation["dataset"], run["label"]))
        if number is not None:
            axes.axhline(number, **PRINTED)
            marked = True
    for axes in panels.values():
        axes.set_ylim(0, 1)
        canvas.rounds_axis(axes)
    handles = style.method_handles(exhibit, looks)
    handles += [Line2D([], [], label="published, learned", **PRINTED)] if marked else []
    sentences = exhibits.published_note(exhibit, shown=marked)
    band = canvas.spread_text(exhibit, "band")
    return canvas.finish(figure, exhibit, handles, band, *sentences)
