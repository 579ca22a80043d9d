"""Accuracy of the seen clients against what was communicated for it."""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fedlib.errors import ConfigError
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.metrics import PRIMARY, TRAFFIC
from fedlib.exhibits.traffic import UNITS, scaled
from fedlib.figures import curves, layout, style

SCALES = ("log", "linear")
DECADE = 10  # ratio of amounts, below which a logarithmic axis would have too few ticks


@style.styled()
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
      metric, protocol, split: which accuracy, see `fedlib.figures.curves`; the protocol must have
        been evaluated during training.
      unit: "MB" or "GB", see `fedlib.exhibits.traffic.scaled`, which finds the one to read.
      scale: of the x axis, "log" or "linear"; linear where a panel has no amount that is `DECADE`
        times another.
      until: how much is shown of a federation, in the unit; all of it if it is not named.
      shaded: method whose runs are shades of its colour, see `fedlib.figures.style.looks`.

    Raises:
      ConfigError: for another metric, split, unit, scale or federation.
      DataError: if a run was not evaluated so.
    """
    accuracy = curves.Shown(metric, protocol, split)
    curves.check(accuracy, exhibit, until)
    for name, value, known in (("unit", unit, UNITS), ("scale", scale, SCALES)):
        if value not in known:
            raise ConfigError(f"{name} must be {' or '.join(known)}, got {value!r}")
    shown = _with_traffic(exhibit, metrics, accuracy)
    limits = {name: limit * UNITS[unit] for name, limit in (until or {}).items()}
    shown = shown[shown["sent"] <= shown["federation"].map(limits).fillna(math.inf)]
    unit, size = scaled(unit, shown["sent"].max())
    shown = shown.assign(sent=shown["sent"] / size)
    looks = style.looks(exhibit, shaded, curves.scores(shown))
    figure, grid = layout.by_federation(exhibit, f"Communicated so far ({unit})", accuracy.axis())
    scale, silent, focused = _scale(scale, shown), False, ""
    for axes, federation in grid:
        here, drawn = exhibits.pick(shown, federation=federation["name"]), []
        axes.set_xscale(scale)
        for run in exhibits.runs_of(exhibit, federation["name"]):
            mine = exhibits.pick(here, label=run["label"])
            silent |= _draw_curve(axes, mine, looks[run["label"]], exhibit["runs"])
            drawn.append(mine["mean"])
        focused = curves.focus(axes, drawn) or focused
        layout.percent_axis(axes)
        _mark(axes)
    handles = style.method_handles(exhibit, looks)
    note = "A line across the panel: a method that sends nothing, at its last accuracy."
    notes = (
        f"Communicated: all clients together, up and down; 1 {unit} is {size:,.0f} bytes.",
        layout.spread_text(exhibit, "band"),
        focused,
        note if silent else "",
        style.others_note(exhibit, looks),
    )
    layout.finish(figure, exhibit, handles, *notes)
    return figure


def _with_traffic(exhibit: dict, metrics: pd.DataFrame, accuracy: curves.Shown) -> pd.DataFrame:
    """The curves over rounds, with the bytes sent by then in the column `sent`, mean over seeds."""
    key = ["federation", "label", "round"]
    rows = exhibits.pick(exhibits.select(exhibit, metrics), at="round", metric="bytes")
    rows = exhibits.pick(rows, **TRAFFIC._asdict())
    sent = rows.groupby(key, sort=False)["value"].mean()
    return curves.over_rounds(exhibit, metrics, accuracy).join(sent.rename("sent"), on=key)


def _scale(scale: str, shown: pd.DataFrame) -> str:
    """The scale of all panels: what is asked for, if all have room for a logarithmic one."""
    sent = shown[shown["sent"] > 0].groupby("federation")["sent"]
    return scale if (sent.max() / sent.min() >= DECADE).all() else "linear"


def _mark(axes: Axes) -> None:
    """Ticks; on a logarithmic axis at powers of ten, and if it is short at 2 and 5 times these."""
    if axes.get_xscale() == "log":
        low, high = axes.get_xlim()
        subs = (1, 2, 5) if math.log10(high / low) < 1.5 else (1,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.margins(x=0.015)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")


def _draw_curve(axes: Axes, curve: pd.DataFrame, look: style.Look, runs: list[dict]) -> bool:
    """Draw one run; True if it sends nothing."""
    if not (curve["sent"] > 0).any():
        line = {name: look.curve()[name] for name in ("color", "linestyle", "linewidth")}
        axes.axhline(curve["mean"].iloc[-1], **line)
        return True
    sending = curve[curve["sent"] > 0] if axes.get_xscale() == "log" else curve
    curves.draw_curve(axes, sending, look, runs, x="sent")
    return False
