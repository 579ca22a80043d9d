"""Accuracy against one parameter, such as the number of experts or a Dirichlet concentration.

One panel per federation or, if the parameter belongs to federations, per family of federations.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.report import exhibits, notes
from fedlib.report.figures import canvas, curves, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.report.metrics.seeds import over_seeds
from fedlib.spec import Run

EVEN = "Values stand at even distances, not to scale."
EVEN_ABOVE = 10  # above this ratio of the largest to the smallest, values are evenly spaced


def draw(given: Inputs) -> Figure:
    """The figure.

    Raises:
      ConfigError: see `fedlib.report.exhibits.place_runs`, or if two runs are at the same place.
    """
    exhibit, kind = given.exhibit, given.kind
    places = exhibits.place_runs(exhibit, kind.parameter, kind.of)
    exhibits.check_apart(exhibit, places, "panel", "method")
    points = _points(given, places)
    methods = [*dict.fromkeys([*kind.methods, *points["method"]])]  # all that run
    settings = points["setting"].drop_duplicates().tolist()
    even = is_even(settings)
    points["x"] = positions(points["setting"], settings, even)
    titles = exhibits.panels(exhibit, kind.of)
    xlabel = exhibits.parameter_title(kind.parameter, kind.symbol)
    ylabel = f"Test accuracy, {curves.METRICS[kind.metric]} (%)"
    figure, grid = canvas.panels(titles, xlabel, ylabel)
    for axes, title in zip(grid, titles, strict=True):
        for method in methods:
            mine = exhibits.pick(points, panel=title, method=method)
            _draw_points(axes, mine, style.method_look(method))
        lay_out(axes, settings, even)
        axes.margins(x=0.08, y=0.12)
        canvas.percent_axis(axes)
    handles = _handles(points, methods, exhibit.runs)
    meaning = canvas.spread_text(exhibit, "bar"), notes.parameter(kind.parameter, kind.symbol)
    said = "After the last round.", *meaning, EVEN if even else ""
    return canvas.finish(figure, exhibit, handles, *said)


def is_even(settings: list[float | str]) -> bool:
    """Whether these sorted values stand at even distances on an axis: texts, and many sizes."""
    if any(isinstance(setting, str) for setting in settings):
        return True
    positive = [setting for setting in settings if setting > 0]
    return bool(positive) and positive[-1] / positive[0] > EVEN_ABOVE


def positions(values: pd.Series, settings: list[float | str], even: bool) -> pd.Series:
    """Positions of the values on an axis; `settings` are all values, sorted."""
    return values.map(settings.index) if even else values


def lay_out(axes: Axes, settings: list[float | str], even: bool) -> None:
    """Give the x axis a tick at each of the sorted settings."""
    ticks = list(range(len(settings))) if even else settings
    axes.set_xticks(ticks, [exhibits.setting_text(setting) for setting in settings])


def _points(given: Inputs, runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with their metric over seeds, in order of their settings."""
    shown = exhibits.pick(given.rows, at="last", metric=given.kind.metric, **PRIMARY._asdict())
    points = runs.merge(over_seeds(shown, ["federation", "label"]), on=["federation", "label"])
    return points.sort_values("setting", kind="stable")


def _draw_points(axes: Axes, points: pd.DataFrame, look: style.Look) -> None:
    if points.empty:
        return
    spread = [points["mean"] - points["low"], points["high"] - points["mean"]]
    bar = {"ecolor": look.color, "elinewidth": 1.1, "capsize": 2.5}
    bar["yerr"] = spread if (points["seeds"] > 1).any() else None
    axes.errorbar(points["x"], points["mean"], **bar, **look.curve())


def _handles(points: pd.DataFrame, methods: list[str], runs: list[Run]) -> list[Line2D]:
    titles = {method: [run.title for run in runs if run.method == method] for method in methods}
    names = {method: exhibits.method_title(method, titles[method]) for method in methods}
    return [
        Line2D([], [], label=name, **style.method_look(method).curve())
        for method, name in names.items()
        if (points["method"] == method).any()
    ]
