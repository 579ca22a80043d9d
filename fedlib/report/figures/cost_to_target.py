"""Bars of what runs send and compute to reach a target accuracy, two panels per federation.

A run that does not reach the target has no bar. Definitions: `fedlib.report.time_to_accuracy`.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fedlib.report import comparisons, exhibits, time_to_accuracy
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs

PANELS = {  # field of `Costs`: name of its axis, and its unit
    "bytes": ("Sent by all clients together (MiB)", 2**20),
    "flops": ("Training of all clients together (TFLOP)", 1e12),
}
ROW_HEIGHT = 0.21  # inches of a bar and its name
AROUND = 1.1  # inches of a panel's title and axis
ROOM = 4.0  # factor of space left and right of the bars on a logarithmic axis; right for numbers
NOT_REACHED = "not reached"


@style.styled()
def draw(given: Inputs) -> Figure:
    """The figure: means over seeds that reach the target, a whisker from least to most.

    Raises:
      ConfigError, DataError: see `fedlib.report.time_to_accuracy.costs`.
    """
    exhibit, targets = given.exhibit, given.kind.targets
    found = time_to_accuracy.costs(given, targets)
    where = [(federation, field) for federation in exhibit["federations"] for field in PANELS]
    most = max(len(exhibits.runs_of(exhibit, f["name"])) for f in exhibit["federations"])
    height = AROUND + ROW_HEIGHT * most
    titles = [f"{f['title']}: {100 * targets[f['name']]:g} %" for f, _ in where]
    figure, grid = canvas.panels(titles, columns=len(PANELS), height=height)
    looks = style.looks(exhibit)
    for axes, (federation, field) in zip(grid, where, strict=True):
        runs = exhibits.runs_of(exhibit, federation["name"])
        name, unit = PANELS[field]
        spent = [found[federation["name"], run["label"]][field].dropna() / unit for run in runs]
        _draw_bars(axes, spent, [looks[run["label"]].color for run in runs])
        axes.set_yticks(range(len(runs)), [run["title"] for run in runs])
        axes.set_xlabel(name)
    canvas.finish(
        figure,
        exhibit,
        [],
        f"Until the first evaluated round at which the {comparisons.METRICS[comparisons.MEAN]}, "
        "reaches the target on test examples; means over the seeds that reach it. Logarithmic "
        "axes.",
        canvas.spread_text(exhibit, "whisker"),
    )
    return figure


def _draw_bars(axes: Axes, spent: list[pd.Series], colors: list[str]) -> None:
    """A bar per run, from the top, with its number; `spent` has the seeds that reach the target."""
    means = np.array([values.mean() if len(values) else np.nan for values in spent])
    shown = means[means > 0]  # not NaN
    left, right = (shown.min() / ROOM, shown.max() * ROOM) if len(shown) else (0.1, 1.0)
    axes.set(xscale="log", xlim=(left, right), ylim=(len(spent) - 0.4, -0.6))
    for place, (values, mean, color) in enumerate(zip(spent, means, colors, strict=True)):
        end = max(mean, left) if len(values) else left
        axes.barh(place, end - left, 0.7, left, color=color)
        if len(values) > 1 and mean > 0:
            spread = [[mean - values.min()], [values.max() - mean]]
            axes.errorbar(mean, place, xerr=spread, **style.WHISKER)
            end = values.max()
        beside = {"xytext": (3, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(_text(mean), (end, place), **beside)
    axes.xaxis.set_major_locator(LogLocator(numticks=6))
    axes.xaxis.set_major_formatter(lambda value, _: _text(value))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(False, axis="y")


def _text(mean: float) -> str:
    """A number in three digits without a power of ten, "0.00839"; a phrase for NaN."""
    if np.isnan(mean):
        return NOT_REACHED
    rounded = float(f"{mean:.3g}")
    return np.format_float_positional(rounded, trim="-")
