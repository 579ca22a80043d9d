"""The curves and points of a drawn figure, panel by panel, for its csv and for reading them off."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import Formatter

DIGITS = 5


def of(figure: Figure) -> list[dict]:
    """The panels of a figure as `fedlib.report.figures.saving` laid it out, for JSON.

    Returns:
      For each panel "title", "x" and "y" (names of the axes), "box" (left, top, width and height,
      as shares of the figure), "limits" and "log" of both axes, "percent" (whether an axis shows a
      share as percent), "names" (texts of ticks by position, where those are no numbers of the
      axis), and "series". A series has "name", "color", "line" (whether its points are
      joined), "dash" (of its line, in line widths; [] for none), "x" and "y".
    """
    titles = {
        to_hex(handle.get_color()): text.get_text()
        for legend in figure.legends
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True)
        if isinstance(handle, Line2D)
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
        "box": _round([box.x0, 1 - box.y1, box.width, box.height]),
        "limits": [_round(axes.get_xlim()), _round(axes.get_ylim())],
        "log": [axes.get_xscale() == "log", axes.get_yscale() == "log"],
        # Whether an axis shows the share 0.5 as "50".
        "percent": [x.get_major_formatter()(0.5) == "50" for x in (axes.xaxis, axes.yaxis)],
        "names": [_names(x.get_major_formatter()) for x in (axes.xaxis, axes.yaxis)],
        "series": [
            one
            for one in _series(axes, titles)
            if any(None not in point for point in zip(one["x"], one["y"], strict=True))
        ],
    }


def _names(formatter: Formatter) -> dict[str, str]:
    """The texts of ticks that were given texts, by their position; {} for other axes."""
    told = getattr(formatter, "func", None)  # Matplotlib has no public name for the texts
    texts = told.args[0] if isinstance(told, partial) else {}
    return {f"{at:g}": _line(text) for at, text in texts.items()}


def _series(axes: Axes, titles: dict) -> Iterator[dict]:
    """The lines and dots; unnamed ones get their colour's name in the legend."""
    whiskers = [cap for found in axes.containers for cap in _whiskers(found)]
    for line in axes.get_lines():
        if line.get_transform() == axes.transData and line not in whiskers:
            joined, color = line.get_linestyle() != "None", to_hex(line.get_color())
            label = str(line.get_label())  # Matplotlib's own, "_child3", if it was given none
            dash = line._unscaled_dash_pattern[1]  # Matplotlib has no public name for it
            x, y = map(_round, line.get_xydata().T)
            yield {
                "name": titles.get(color, "") if not label or label[0] == "_" else label,
                "color": color,
                "line": joined,
                "dash": [*(dash or ())] if joined else [],
                "x": x,
                "y": y,
            }


def _whiskers(found: object) -> list:
    """The lines of error bars that are not curves: the ends, and a middle without a line style."""
    if not isinstance(found, ErrorbarContainer):
        return []
    middle, ends, _ = found.lines
    return [*ends, middle] if middle.get_linestyle() == "None" else [*ends]


def _line(text: str) -> str:
    return " ".join(text.split())


def _round(values) -> list[float | None]:
    """Plain numbers of `DIGITS` significant digits, None where not finite."""
    found = np.asarray(values, float).tolist()
    return [float(f"{x:.{DIGITS}g}") if np.isfinite(x) else None for x in found]
