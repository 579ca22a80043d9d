"""Accuracy of the seen clients against what was communicated for it."""

import math
from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fedlib.errors import ConfigError
from fedlib.report import exhibits
from fedlib.report.figures import curves, layout, style
from fedlib.report.metrics import PRIMARY, TRAFFIC
from fedlib.report.traffic import UNITS, scaled

SCALES = ("log", "linear")
DECADE = 10  # ratio of amounts, below which a logarithmic axis would have too few ticks


SILENT_NOTE = "A line across the panel: a method that sends nothing, at its last accuracy."


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
      metric, protocol, split: which accuracy, see `fedlib.report.figures.curves`; the protocol
        must have been evaluated during training.
      unit: "MB" or "GB", see `fedlib.report.traffic.scaled`, which finds the one to read.
      scale: of the x axis, "log" or "linear"; linear where a panel has no amount that is `DECADE`
        times another.
      until: how much is shown of a federation, in the unit; all of it if it is not named.
      shaded: method whose runs are shades of its colour, see `fedlib.report.figures.style.looks`.

    Raises:
      ConfigError: for another metric, split, unit, scale or federation.
      DataError: if a run was not evaluated so.
    """
    accuracy = curves.Shown(metric, protocol, split)
    curves.check(accuracy, exhibit, until)
    _check("unit", unit, UNITS)
    _check("scale", scale, SCALES)
    shown, unit, size = _cut(_with_traffic(exhibit, metrics, accuracy), unit, until or {})
    looks = style.looks(exhibit, shaded, curves.scores(shown))
    figure, grid = layout.by_federation(exhibit, f"Communicated so far ({unit})", accuracy.axis())
    scale, silent, focused = _scale(scale, shown), False, ""
    for axes, federation in grid:
        axes.set_xscale(scale)
        runs = exhibits.runs_of(exhibit, federation["name"])
        drawn = [exhibits.pick(shown, federation=x["federation"], label=x["label"]) for x in runs]
        for run, curve in zip(runs, drawn, strict=True):
            silent |= _draw_curve(axes, curve, looks[run["label"]], exhibit["runs"])
        focused = curves.focus(axes, [curve["mean"] for curve in drawn]) or focused
        layout.percent_axis(axes)
        _mark(axes)
    layout.finish(
        figure,
        exhibit,
        style.method_handles(exhibit, looks),
        f"Communicated: all clients together, up and down; 1 {unit} is {size:,.0f} bytes.",
        *(layout.spread_text(exhibit, "band"), focused, SILENT_NOTE if silent else ""),
        style.others_note(exhibit, looks),
    )
    return figure


def _check(name: str, value: str, known: Iterable[str]) -> None:
    """Raise ConfigError for a value that is not one of these."""
    if value not in known:
        raise ConfigError(f"{name} must be {' or '.join(known)}, got {value!r}")


def _cut(
    shown: pd.DataFrame, unit: str, until: dict[str, float]
) -> tuple[pd.DataFrame, str, float]:
    """The curves up to `until`, with what was sent in a readable unit; that, and its bytes."""
    limits = {name: limit * UNITS[unit] for name, limit in until.items()}
    shown = shown[shown["sent"] <= shown["federation"].map(limits).fillna(math.inf)]
    unit, size = scaled(unit, shown["sent"].max())
    return shown.assign(sent=shown["sent"] / size), unit, size


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
