"""Test accuracy of the seen clients against what was communicated for it."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fedlib import exhibit as exhibits
from fedlib.figures import style
from fedlib.metrics import PRIMARY, TRAFFIC, over_seeds

MEGABYTE = 1e6


@style.styled
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
) -> Figure:
    """The figure; a run that sends nothing is a horizontal line at its last accuracy."""
    shown = exhibits.pick(exhibits.select(exhibit, metrics), at="round")
    key = ["federation", "label", "round"]
    curves = over_seeds(exhibits.pick(shown, metric="accuracy", **PRIMARY._asdict()), key)
    sent = exhibits.pick(shown, metric="bytes", **TRAFFIC._asdict())
    megabytes = sent.groupby(key, sort=False)["value"].mean() / MEGABYTE
    curves = curves.join(megabytes.rename("megabytes"), on=key)
    looks = style.looks(exhibit["runs"])
    figure, grid = style.panels(exhibit)
    silent = False
    for axes, federation in zip(grid, exhibit["federations"], strict=True):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        for run in exhibits.runs_of(exhibit, federation["name"]):
            mine = exhibits.pick(curves, federation=federation["name"], label=run["label"])
            silent |= _draw_curve(axes, mine, looks[run["label"]], exhibit["runs"])
        axes.set(
            title=federation["title"],
            xlabel="Communicated so far (MB)",
            ylabel="Test accuracy, all clients (%)",
        )
        style.percent_axis(axes)
    style.legend(figure, style.method_handles(exhibit))
    note = "A line across the panel: a method that sends nothing, at its last accuracy."
    what = "Communicated: all clients together, up and down; 1 MB is 1 000 000 bytes."
    band = style.spread_text(exhibit, "band")
    style.footer(figure, exhibit, what, band, note if silent else "")
    return figure


def _draw_curve(axes: Axes, curve: pd.DataFrame, look: style.Look, runs: list[dict]) -> bool:
    """Draw one run; True if it sends nothing."""
    sending = curve[curve["megabytes"] > 0]
    if sending.empty:
        line = {name: look.curve()[name] for name in ("color", "linestyle", "linewidth")}
        axes.axhline(curve["mean"].iloc[-1], **line)
        return True
    marked = style.markers(runs, curve["label"].iloc[0], len(sending))
    axes.plot(sending["megabytes"], sending["mean"], markevery=marked, **look.curve())
    if (sending["seeds"] > 1).any():
        band = style.band(look, runs)
        axes.fill_between(sending["megabytes"], sending["low"], sending["high"], **band)
    return False
