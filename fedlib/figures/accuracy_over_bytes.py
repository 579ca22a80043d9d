"""Accuracy of the seen clients against what was communicated for it."""

import math
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from fedlib.errors import ConfigError
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.metrics import PRIMARY, TRAFFIC
from fedlib.exhibits.traffic import UNITS, readable
from fedlib.figures import curves, style

MEANINGS = {"MB": "1 MB is 1 000 000 bytes", "GB": "1 GB is 2^30 bytes"}
SCALES = ("log", "linear")


class _Axis(NamedTuple):
    """The x axis: its scale and, per federation, where it ends."""

    scale: str
    until: dict[str, float] | None


@style.styled
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    metric: str = "accuracy",
    protocol: str = PRIMARY.protocol,
    split: str = PRIMARY.split,
    unit: str = "MB",
    scale: str = "log",
    until: dict[str, float] | None = None,
    shaded: str | None = None,
) -> Figure:
    """The figure; a run that sends nothing is a horizontal line at its last accuracy.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.
      metric, protocol, split: which accuracy, see `fedlib.figures.curves`; the protocol must have
        been evaluated during training.
      unit: "MB" or "GB", see `UNITS`; MB where there is too little for GB.
      scale: of the x axis, "log" or "linear".
      until: how much is shown of a federation, in the unit; all of it if it is not named.
      shaded: method whose runs are shades of its colour, see `fedlib.figures.style.looks`.

    Raises:
      ConfigError: for another metric, split, unit, scale or federation.
      DataError: if a run was not evaluated so.
    """
    accuracy = curves.Shown(metric, protocol, split)
    curves.check(accuracy, exhibit, until)
    x = _axis(unit, scale, until)
    shown = _with_traffic(exhibit, metrics, accuracy)
    if unit == "GB" and not until:
        unit = readable(shown["sent"].max() / UNITS["GB"])
    shown["sent"] /= UNITS[unit]
    looks = style.looks(exhibit["runs"], shaded)
    figure, grid = style.panels(exhibit)
    silent, focused = False, ""
    for axes, federation in zip(grid, exhibit["federations"], strict=True):
        _lay_out(axes, scale, federation["title"], unit, accuracy)
        drawn = []
        for run in exhibits.runs_of(exhibit, federation["name"]):
            mine = exhibits.pick(shown, federation=federation["name"], label=run["label"])
            silent |= _draw_curve(axes, mine, looks[run["label"]], exhibit["runs"], x)
            drawn.append(mine["mean"])
        focused = curves.focus(axes, drawn) or focused
        style.percent_axis(axes)
        _mark(axes)
    style.legend(figure, style.method_handles(exhibit, shaded=shaded))
    note = "A line across the panel: a method that sends nothing, at its last accuracy."
    what = f"Communicated: all clients together, up and down; {MEANINGS[unit]}."
    band = style.spread_text(exhibit, "band")
    style.footer(figure, exhibit, what, band, focused, note if silent else "")
    return figure


def _axis(unit: str, scale: str, until: dict[str, float] | None) -> _Axis:
    if unit not in UNITS:
        raise ConfigError(f"unit must be {' or '.join(UNITS)}, got {unit!r}")
    if scale not in SCALES:
        raise ConfigError(f"scale must be {' or '.join(SCALES)}, got {scale!r}")
    return _Axis(scale, until)


def _with_traffic(exhibit: dict, metrics: pd.DataFrame, accuracy: curves.Shown) -> pd.DataFrame:
    """The curves over rounds, with the bytes sent by then in the column `sent`, mean over seeds."""
    key = ["federation", "label", "round"]
    rows = exhibits.pick(exhibits.select(exhibit, metrics), at="round", metric="bytes")
    rows = exhibits.pick(rows, **TRAFFIC._asdict())
    sent = rows.groupby(key, sort=False)["value"].mean()
    return curves.over_rounds(exhibit, metrics, accuracy).join(sent.rename("sent"), on=key)


def _lay_out(axes: Axes, scale: str, title: str, unit: str, accuracy: curves.Shown) -> None:
    axes.set(title=title, xlabel=f"Communicated so far ({unit})", ylabel=accuracy.axis())
    axes.set_xscale(scale)
    if scale == "linear":
        axes.margins(x=0.015)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _mark(axes: Axes) -> None:
    """Ticks of a logarithmic x axis as what is drawn needs them, so that none lies on another."""
    if axes.get_xscale() == "linear":
        return
    low, high = axes.get_xlim()
    decades = math.log10(high / low)
    if decades < 1:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
    else:
        subs = (1, 2, 5) if decades < 1.5 else (1, 3) if decades < 2.5 else (1,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_curve(
    axes: Axes, curve: pd.DataFrame, look: style.Look, runs: list[dict], x: _Axis
) -> bool:
    """Draw one run; True if it sends nothing."""
    if not (curve["sent"] > 0).any():
        line = {name: look.curve()[name] for name in ("color", "linestyle", "linewidth")}
        axes.axhline(curve["mean"].iloc[-1], **line)
        return True
    possible = curve[curve["sent"] > 0] if x.scale == "log" else curve
    sending = curves.cut(possible, "sent", x.until)
    marked = style.markers(runs, curve["label"].iloc[0], len(sending))
    axes.plot(sending["sent"], sending["mean"], markevery=marked, **look.curve())
    if (sending["seeds"] > 1).any():
        band = style.band(look, runs)
        axes.fill_between(sending["sent"], sending["low"], sending["high"], **band)
    return False
