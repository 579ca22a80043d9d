"""Test accuracy of the seen clients against the communication round, one panel per federation."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib import exhibit as exhibits
from fedlib import published as printed
from fedlib.errors import ConfigError
from fedlib.figures import style
from fedlib.metrics import PRIMARY, over_seeds

AXIS = {
    "accuracy": "Test accuracy, all clients (%)",
    "bottom10": "Test accuracy, bottom-10% client (%)",
}


@style.styled
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    metric: str = "accuracy",
) -> Figure:
    """The figure: mean over seeds, a band over seeds, and where the paper's curves end.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibit`, `fedlib.metrics`,
        `fedlib.published`.
      metric: "accuracy" or "bottom10".

    Raises:
      ConfigError: for another metric.
    """
    if metric not in AXIS:
        raise ConfigError(f"metric must be {' or '.join(AXIS)}, got {metric!r}")
    shown = exhibits.pick(exhibits.select(exhibit, metrics), at="round", metric=metric)
    shown = exhibits.pick(shown, **PRIMARY._asdict())
    curves = over_seeds(shown, ["federation", "label", "round"])
    ends = printed.fractions(published, exhibit["published"], metric)
    looks = style.looks(exhibit["runs"])
    figure, grid = style.panels(exhibit)
    marked = False
    for axes, federation in zip(grid, exhibit["federations"], strict=True):
        mine = exhibits.pick(curves, federation=federation["name"])
        for run in exhibits.runs_of(exhibit, federation["name"]):
            curve = exhibits.pick(mine, label=run["label"])
            _draw_curve(axes, curve, looks[run["label"]])
            end = ends.get((federation["dataset"], run["label"]))
            if end is not None:
                _mark_published(axes, end, looks[run["label"]])
                marked = True
        axes.set(title=federation["title"], xlabel="Communication round", ylabel=AXIS[metric])
        axes.margins(x=0.015)
        style.percent_axis(axes)
    handles = style.method_handles(exhibit)
    if marked:
        tick = {"color": style.GREY, "linewidth": 0, "marker": "_", "markersize": 11}
        handles.append(Line2D([], [], label="published end", markeredgewidth=2, **tick))
    style.legend(figure, handles)
    sentences = exhibits.published_note(exhibit, shown=marked)
    style.footer(figure, exhibit, style.spread_text(exhibit, "band"), *sentences)
    return figure


def _draw_curve(axes: Axes, curve: pd.DataFrame, look: style.Look) -> None:
    every = max(1, len(curve) // 7)
    axes.plot(curve["round"], curve["mean"], markevery=every, **look.curve())
    if (curve["seeds"] > 1).any():
        band = {"color": look.color, "alpha": 0.15, "linewidth": 0}
        axes.fill_between(curve["round"], curve["low"], curve["high"], **band)


def _mark_published(axes: Axes, value: float, look: style.Look) -> None:
    """A short dash just right of the panel, where the published curve ends."""
    axes.plot(
        [1.012, 1.045],
        [value, value],
        transform=axes.get_yaxis_transform(),
        color=look.color,
        linewidth=2,
        solid_capstyle="butt",
        clip_on=False,
    )
