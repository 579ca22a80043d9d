"""Label shares inferred from clients' first updates, against their true shares.

One panel per run, a point for each client and label; a perfect inference is on the diagonal.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, figures 9 and 10, which
have a small panel for each client; FedMix's README, section 7.5.
"""

from matplotlib.figure import Figure

from fedlib.report import diagnostics, recovery
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs

POINTS = {"s": 9, "color": style.PALETTE[0], "alpha": 0.4, "linewidths": 0}


def draw(given: Inputs) -> Figure:
    """The figure, of one seed.

    Raises:
      DataError: if the clients' inferred shares are not recorded.
    """
    exhibit = given.exhibit
    names = "True share of a label (%)", "Share that is read (%)"
    figure, grid = canvas.panels(canvas.by_run(exhibit), *names, height=2.6)
    about = []
    for axes, run in zip(grid, exhibit.runs, strict=True):
        mine = diagnostics.of_seed(given, run, exhibit.seeds[0])
        true, guess = diagnostics.matrix(mine, "labels"), diagnostics.matrix(mine, "recovered")
        axes.axline((0, 0), slope=1, color=style.GREY, linewidth=0.8)
        axes.scatter(true, guess, **POINTS)
        most = 1.03 * max(true.max(), guess.max())  # the same on both axes, so that the line is
        axes.set(xlim=(-0.03 * most, most), ylim=(-0.03 * most, most), aspect="equal")  # a diagonal
        canvas.percent_axis(axes)
        axes.xaxis.set_major_locator(axes.yaxis.get_major_locator())
        axes.xaxis.set_major_formatter(axes.yaxis.get_major_formatter())
        about.append(
            f"{run.title}, {len(mine)} clients: mean total variation "
            f"{recovery.total_variation(guess, true).mean():.3f}, correlation "
            f"{recovery.correlation(guess, true):.3f}."
        )
    meaning = "Points: clients' labels, as shares of their training examples. Line: read exactly."
    return canvas.finish(figure, exhibit, [], canvas.first_seed_note(exhibit), meaning, *about)
