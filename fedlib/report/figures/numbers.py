"""The numbers that a drawn figure shows, panel by panel, for its csv and for tooltips."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from matplotlib.ticker import FixedLocator

DIGITS = 5
MOST = 10_000  # cells of a matrix whose numbers are given; the picture suffices for larger ones
UNNAMED = "_"  # first character of Matplotlib's labels for artists without a label


def of(figure: Figure) -> list[dict]:
    """The panels of a figure as `fedlib.report.figures.saving` laid it out, for JSON.

    Returns:
      For each panel "title", "x" and "y" (names of the axes), "box" (left, top, width and height,
      as shares of the figure), "limits" and "log" of both axes, "percent" (whether an axis shows a
      share as percent), and "series". A series has "name", "color", "line" (whether its points are
      joined), "dash" (of its line, in line widths; [] for none), "at" (whether its points are drawn
      at their values), "x", "y" and, for a matrix of up to `MOST` cells, "value".
    """
    titles = {
        _look(handle): text.get_text()
        for legend in figure.legends
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True)
    }
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    names = {
        side: next(filter(None, (getattr(axes, f"get_{side}label")() for axes in panels)), "")
        for side in "xy"
    }
    return [_panel(axes, names, titles) for axes in panels]


def _panel(axes: Axes, names: dict, titles: dict) -> dict:
    box = axes.get_position()
    return {
        "title": _line(axes.get_title()),
        **{side: _line(getattr(axes, f"get_{side}label")() or names[side]) for side in "xy"},
        "box": _rounded([box.x0, 1 - box.y1, box.width, box.height]),
        "limits": [_rounded(axes.get_xlim()), _rounded(axes.get_ylim())],
        "log": [axes.get_xscale() == "log", axes.get_yscale() == "log"],
        "percent": [_is_percent(axis) for axis in (axes.xaxis, axes.yaxis)],
        "series": [
            series for series in _series(axes, titles) if any(y is not None for y in series["y"])
        ],
    }


def _series(axes: Axes, titles: dict) -> Iterator[dict]:
    """Lines, bars, steps, dots and matrices; unnamed ones get their colour's name in the legend."""
    bars = [found for found in axes.containers if isinstance(found, BarContainer)]
    whiskers = [cap for found in axes.containers for cap in _whiskers(found)]
    for line in axes.get_lines():
        if line.get_transform() == axes.transData and line not in whiskers:
            joined = line.get_linestyle() != "None"
            xy = line.get_xydata().T
            made = _made(_name(line, line, titles), line.get_color(), *xy, line=joined)
            dash = line._unscaled_dash_pattern[1]  # Matplotlib has no public name for it
            yield made | {"dash": [*(dash or ())] if joined else []}
    for bar in bars:
        yield from _of_bars(axes, bar, titles)
    for steps in (patch for patch in axes.patches if isinstance(patch, StepPatch)):
        values, edges, baseline = steps.get_data()
        name, height = _name(steps, steps, titles), values - (0 if baseline is None else baseline)
        yield _made(name, _look(steps)[0], (edges[1:] + edges[:-1]) / 2, height, at=False)
    for dots in (found for found in axes.collections if isinstance(found, PathCollection)):
        yield _made(_name(dots, dots, titles), _look(dots)[0], *dots.get_offsets().T)
    for image in (image for image in axes.get_images() if image.get_array().size <= MOST):
        values = np.ma.filled(np.ma.asarray(image.get_array(), float), np.nan)
        rows, columns = np.indices(values.shape).reshape(2, -1)
        yield _made("", "#000000", columns, rows, at=False) | {"value": _rounded(values.ravel())}


def _whiskers(found: object) -> list:
    """The lines of error bars that are not curves: the ends, and a middle without a line style."""
    if not isinstance(found, ErrorbarContainer):
        return []
    middle, ends, _ = found.lines
    return [*ends, middle] if middle.get_linestyle() == "None" else [*ends]


def _of_bars(axes: Axes, bars: BarContainer, titles: dict) -> Iterator[dict]:
    """A series for each bar that has a name on its axis, or one series of all bars."""
    across = bars.orientation == "horizontal"
    boxes = [bar.get_bbox() for bar in bars]
    ends = [((b.x0 + b.x1) / 2, b.y1) if not across else (b.x1, (b.y0 + b.y1) / 2) for b in boxes]
    ticks = _ticks(axes.yaxis) if across else {}
    if not ticks and ends:
        first = bars.patches[0]
        yield _made(_name(bars, first, titles), _look(first)[0], *np.transpose(ends))
    for bar, (x, y) in zip(bars, ends if ticks else [], strict=False):
        yield _made(ticks.get(round(y, 3), ""), _look(bar)[0], [x], [y])


def _ticks(axis: Axis) -> dict[float, str]:
    """Names of ticks by position, if an axis has fixed ticks."""
    if not isinstance(axis.get_major_locator(), FixedLocator):
        return {}
    names = [label.get_text() for label in axis.get_majorticklabels()]
    return dict(zip(np.round(axis.get_majorticklocs(), 3), names, strict=True))


def _made(name: str, color: object, x, y, line: bool = False, at: bool = True) -> dict:
    about = {"name": name, "color": to_hex(color), "line": line, "dash": [], "at": at}
    return about | {"x": _rounded(x), "y": _rounded(y)}


def _name(owner: object, drawn: object, titles: dict) -> str:
    """The label of an artist, or of the legend entry that looks like it."""
    label = str(owner.get_label())
    return titles.get(_look(drawn), "") if not label or label[0] == UNNAMED else label


def _look(artist: object) -> tuple:
    """The key that matches an artist to its legend entry: colour with transparency."""
    color = artist.get_color() if hasattr(artist, "get_color") else artist.get_facecolor()
    color = color[0] if isinstance(color, np.ndarray) and color.ndim == 2 else color
    return (to_hex(color, keep_alpha=True),)


def _is_percent(axis: Axis) -> bool:
    """Whether an axis shows the share 0.5 as "50"."""
    return axis.get_major_formatter()(0.5) == "50"


def _line(text: str) -> str:
    return " ".join(text.split())


def _rounded(values) -> list[float | None]:
    """Plain numbers of `DIGITS` significant digits, None where not finite."""
    found = np.asarray(values, float).tolist()
    return [float(f"{x:.{DIGITS}g}") if np.isfinite(x) else None for x in found]
