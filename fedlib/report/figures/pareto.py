"""Accuracy against what methods send, and against what they compute: which are worth their cost.

Means over the federations that all of these methods ran on; costs are multiples of one method's
costs. The stepped line joins the methods that no other beats in both.
"""

from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fedlib.report import choices, contrasts
from fedlib.report.figures import canvas, labels, style
from fedlib.report.inputs import Inputs

HEIGHT = 3.0  # inches of a panel with its names
SIZE = (475, 176)  # of a panel without names, in typographic points
PANELS = {"bytes": "Bytes sent", "flops": "Arithmetic of clients"}  # by cost
FRONT = {"color": style.FRAME, "linewidth": 1.2, "zorder": 1}
SILENT = {"color": style.FRAME, "linewidth": 1.2, "linestyle": style.DOTTED, "zorder": 1}
PICKED = style.Look("#262626", "*", style.SOLID)  # of a row in which clients pick a method


def draw(given: Inputs) -> Figure:
    """The figure: a panel for each cost."""
    exhibit, kind = given.exhibit, given.kind
    numbers = _numbers(given)
    base = _base(numbers, kind.against)
    found = choices.relative(numbers, base, ["mean"])
    figure, grid = canvas.panels(["", ""], ylabel="Accuracy (%)", columns=1, height=HEIGHT)
    looks = _looks(given)
    for axes, (cost, title) in zip(grid, PANELS.items(), strict=True):
        axes.set_xlabel(f"{title} ({base} = 1)")
        _draw(axes, found[["mean", cost]].dropna().rename(columns={cost: "cost"}), looks)
    silent = [str(title) for title in found.index[found["bytes"] == 0]]
    federations = numbers["federation"].nunique()
    return canvas.finish(
        figure,
        exhibit,
        [],
        f"Mean accuracy of the seen clients after the last round, over {federations} federations; "
        "methods that did not run on all of them are left out.",
        "The line joins the methods (bold) that nobody beats at the same cost or less.",
        f"Costs are of training, as multiples of those of {base}; where clients pick, of all that "
        "they pick from.",
        f"Dotted: the best that sends nothing ({', '.join(silent)})." if silent else "",
    )


def _numbers(given: Inputs) -> pd.DataFrame:
    """Accuracy and costs by federation and title."""
    shown = choices.choices(given, given.kind.rows)
    costs = pd.DataFrame(one.about | choices.costs(given, one) for one in shown)
    values = contrasts.accuracies(given, given.kind.rows)
    means = values.groupby(["federation", "title"])["value"].mean().rename("mean")
    return costs.join(means, on=["federation", "title"])


def _base(numbers: pd.DataFrame, wanted: str) -> str:
    """The method whose cost is 1: `wanted`, or if it was not run, the first that sends anything."""
    sending = numbers.loc[numbers["bytes"] > 0, "title"]
    return wanted if wanted in [*sending] or sending.empty else sending.iloc[0]


def _looks(given: Inputs) -> dict[str, style.Look]:
    """Looks by title."""
    looks = style.looks(given.exhibit)
    return {
        row["title"]: PICKED if row.get("pick") else looks[label]
        for row in given.kind.rows
        for label in row["labels"]
        if label in looks
    }


def _draw(axes: Axes, found: pd.DataFrame, looks: dict[str, style.Look]) -> None:
    """Draw a panel of the columns "mean" and "cost" by title."""
    axes.set_xscale("log")
    free, found = found[found["cost"] == 0], found[found["cost"] > 0]
    everything = [*free["mean"], *found["mean"]]
    if not everything or found.empty:
        return
    room = max(0.08 * (max(everything) - min(everything)), 0.005)
    axes.set_ylim(min(everything) - room, max(everything) + room)
    axes.set_xlim(found["cost"].min() / 1.5, found["cost"].max() * 1.5)
    best = free["mean"].max() if len(free) else -np.inf
    front = _front(found, best)
    steps = _steps(front, axes.get_xlim()[1])
    lines = [steps] if steps else []
    for line in lines:
        axes.plot(*np.transpose(line), **FRONT)
    if len(free):
        axes.axhline(best, **SILENT)
        lines.append([(end, best) for end in axes.get_xlim()])
    for title, row in found.iterrows():
        look = looks[str(title)]
        marker = {"color": look.color, "marker": look.marker or "o", "linestyle": ""}
        axes.plot([row["cost"]], [row["mean"]], label=str(title), zorder=3, **marker)
    points = [*zip(found["cost"], found["mean"], strict=True)]
    bold = [title in front.index for title in found.index]
    labels.write(axes, points, [*map(str, found.index)], bold, SIZE, lines)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    canvas.percent_axis(axes)


def _front(found: pd.DataFrame, least: float) -> pd.DataFrame:
    """Methods above `least` that no cheaper or equally cheap one beats, in order of cost."""
    ordered = found.sort_values(["cost", "mean"], ascending=[True, False], kind="stable")
    before = ordered["mean"].cummax().shift(fill_value=-np.inf).clip(lower=least)
    return ordered[ordered["mean"] > before]


def _steps(front: pd.DataFrame, end: float) -> list[tuple[float, float]]:
    """Corners of the line that joins the front, up to the cost `end`."""
    costs, means = [*front["cost"], end], [*front["mean"]]
    level = zip(pairwise(costs), means, strict=True)
    return [(cost, mean) for ends, mean in level for cost in ends]
