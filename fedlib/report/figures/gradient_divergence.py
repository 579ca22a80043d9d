"""Divergence of the updates of a round's clients over the rounds, one panel per federation.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, appendix D;
FedMix's README, section 7.3. The paper's window is unknown.
"""

import pandas as pd
from matplotlib.figure import Figure

from fedlib.report import exhibits
from fedlib.report.figures import canvas, curves, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.seeds import over_seeds
from fedlib.report.metrics.tidy import DIVERGENCE

ZERO = "0: all clients of a round change a tensor alike; the tensors of a model are added up."


def draw(given: Inputs) -> Figure:
    """The figure: mean over seeds, and a band over seeds.

    Raises:
      DataError: if a run did not record its divergence.
    """
    exhibit, window = given.exhibit, given.kind.window
    looks = style.looks(exhibit)
    figure, grid = canvas.by_federation(exhibit, "Communication round", "Gradient divergence")
    for axes, federation in grid:
        for run in exhibits.runs_of(exhibit, federation.name):
            curve = _smooth(given.records(run, DIVERGENCE), window)
            curves.draw_curve(axes, curve, looks[run.label], exhibit.runs)
        canvas.rounds_axis(axes)
        axes.set_ylim(bottom=0)
    smoothed = f"Means over the last {window} rounds, fewer at the start." if window > 1 else ""
    band = canvas.spread_text(exhibit, "band")
    handles = style.method_handles(exhibit, looks)
    mean = "Averaged over the experts of a run."
    return canvas.finish(figure, exhibit, handles, mean, smoothed, ZERO, band)


def _smooth(rows: pd.DataFrame, window: int) -> pd.DataFrame:
    """One run's divergence by recorded round, over its experts and the window, `over_seeds`."""
    key = ["federation", "label", "seed"]
    recorded = rows.pivot_table("value", "round", key)  # means over the experts
    every = recorded.reindex(range(1, recorded.index.max() + 1))
    sliding = every.rolling(window, min_periods=1).mean().where(every.notna())
    by_round = sliding.melt(ignore_index=False).dropna().reset_index()
    return over_seeds(by_round, ["federation", "label", "round"])
