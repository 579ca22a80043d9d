"""Accuracy against one hyper-parameter, such as the number of experts; one panel per federation."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib import exhibit as exhibits
from fedlib.errors import ConfigError
from fedlib.figures import style
from fedlib.metrics import PRIMARY, over_seeds

MOMENT = {
    "last": "After the last round.",
    "best": "At the round with the highest test accuracy, a selection on the test set.",
}


@style.styled
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    parameter: str,
    methods: list[str],
    symbol: str = "",
    at: str = "last",
) -> Figure:
    """The figure.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibit`, `fedlib.metrics`,
        `fedlib.published`.
      parameter: the hyper-parameter, a key of the runs' `params`.
      methods: registry names, in legend order.
      symbol: how the paper calls the parameter ("M").
      at: "last" or "best" round.

    Raises:
      ConfigError: for another moment, and see `fedlib.exhibit.swept`.
    """
    if at not in MOMENT:
        raise ConfigError(f"at must be {' or '.join(MOMENT)}, got {at!r}")
    shown = exhibits.pick(exhibits.select(exhibit, metrics), at=at, metric="accuracy")
    summary = over_seeds(exhibits.pick(shown, **PRIMARY._asdict()), ["federation", "label"])
    points = exhibits.swept(exhibit, parameter, methods).merge(summary, on=["federation", "label"])
    points = points.sort_values("setting", kind="stable")
    figure, grid = style.panels(exhibit)
    for axes, federation in zip(grid, exhibit["federations"], strict=True):
        for method in methods:
            mine = exhibits.pick(points, federation=federation["name"], method=method)
            _draw_points(axes, mine, style.method_look(method))
        axes.set(
            title=federation["title"],
            xlabel=exhibits.parameter_title(parameter, symbol),
            ylabel="Test accuracy, all clients (%)",
        )
        settings = sorted(points["setting"].unique())
        axes.set_xticks(settings, [exhibits.setting_text(setting) for setting in settings])
        axes.margins(x=0.08, y=0.12)
        style.percent_axis(axes)
    style.legend(figure, _handles(points, methods))
    style.footer(figure, exhibit, MOMENT[at], style.spread_text(exhibit, "bar"))
    return figure


def _draw_points(axes: Axes, points: pd.DataFrame, look: style.Look) -> None:
    if points.empty:
        return
    spread = [points["mean"] - points["low"], points["high"] - points["mean"]]
    bar = {"ecolor": look.color, "elinewidth": 1.1, "capsize": 2.5}
    bar["yerr"] = spread if (points["seeds"] > 1).any() else None
    axes.errorbar(points["setting"], points["mean"], **bar, **look.curve())


def _handles(points: pd.DataFrame, methods: list[str]) -> list[Line2D]:
    return [
        Line2D([], [], label=exhibits.method_title(method), **style.method_look(method).curve())
        for method in methods
        if (points["method"] == method).any()
    ]
