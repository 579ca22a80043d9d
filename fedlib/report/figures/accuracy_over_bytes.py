"""Accuracy of the seen clients against the bytes communicated."""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fedlib.report import exhibits
from fedlib.report.figures import canvas, curves, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.tidy import TRAFFIC
from fedlib.spec import Run

DECADE = 10  # below this ratio of amounts a logarithmic axis would have too few ticks
SHOWN = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}  # bytes, of what we show
SILENT_NOTE = "A line across the panel: a method that sends nothing, at its last accuracy."


def draw(given: Inputs) -> Figure:
    """The figure; a run that sends nothing is a horizontal line at its last accuracy.

    Raises:
      DataError: if a run has no such accuracies.
    """
    exhibit, kind = given.exhibit, given.kind
    shown = _with_traffic(given)
    most = shown["sent"].max()
    unit, size = next((x for x in SHOWN.items() if most >= x[1]), ("kB", SHOWN["kB"]))
    shown["sent"] /= size
    looks = style.looks(exhibit, curves.scores(shown))
    figure, grid = canvas.by_federation(exhibit, f"Communicated so far ({unit})", curves.axis(kind))
    scale, silent, focused = _scale(kind.scale, shown), False, ""
    for axes, federation in grid:
        axes.set_xscale(scale)
        runs = exhibits.runs_of(exhibit, federation.name)
        drawn = [exhibits.of_run(shown, x) for x in runs]
        for run, curve in zip(runs, drawn, strict=True):
            silent |= _draw_curve(axes, curve, looks[run.label], exhibit.runs)
        focused = curves.focus(axes, [curve["mean"] for curve in drawn]) or focused
        canvas.percent_axis(axes)
        _mark(axes)
    return canvas.finish(
        figure,
        exhibit,
        style.method_handles(exhibit, looks),
        f"Communicated: all clients together, up and down; 1 {unit} is {size:,.0f} bytes.",
        *(canvas.spread_text(exhibit, "band"), focused, SILENT_NOTE if silent else ""),
        *(curves.checks_note(exhibit), style.others_note(exhibit, looks)),
    )


def _with_traffic(given: Inputs) -> pd.DataFrame:
    """The curves over rounds, and in the column `sent` the bytes sent so far, mean over seeds."""
    key = ["federation", "label", "round"]
    rows = exhibits.pick(given.rows, at="round", metric="bytes", **TRAFFIC._asdict())
    sent = rows.groupby(key, sort=False)["value"].mean()
    return curves.over_rounds(given).join(sent.rename("sent"), on=key)


def _scale(scale: str, shown: pd.DataFrame) -> str:
    """The scale of all panels: the declared one, if every panel has room for a logarithmic axis."""
    sent = shown[shown["sent"] > 0].groupby("federation")["sent"]
    return scale if (sent.max() / sent.min() >= DECADE).all() else "linear"


def _mark(axes: Axes) -> None:
    """Ticks; on a logarithmic axis at powers of ten, and on a short one also at 2 and 5 times."""
    if axes.get_xscale() == "log":
        low, high = axes.get_xlim()
        subs = (1, 2, 5) if math.log10(high / low) < 1.5 else (1,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.margins(x=0.015)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")


def _draw_curve(axes: Axes, curve: pd.DataFrame, look: style.Look, runs: list[Run]) -> bool:
    """Draw one run; True if it sends nothing."""
    if not (curve["sent"] > 0).any():
        line = {name: look.curve()[name] for name in ("color", "linestyle", "linewidth")}
        axes.axhline(curve["mean"].iloc[-1], **line)
        return True
    sending = curve[curve["sent"] > 0] if axes.get_xscale() == "log" else curve
    curves.draw_curve(axes, sending, look, runs, x="sent")
    return False
