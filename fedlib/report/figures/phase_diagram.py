"""The method nearest the best possible one, by the difference between clients and their data size.

Left, the best method of each cell and its regret in points; beside it, every method's own regret.
On the line, up to a constant factor, theory expects training alone to overtake one model for all.

Source: W. Chen, Q. Zheng, Q. Long, W. Su, "A Theorem of the Alternative for Personalized Federated
Learning", 2021 (arXiv:2103.01901): whether to federate depends on the product of divergence and
examples alone.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedlib.report import exhibits
from fedlib.report.figures import canvas, heat, style
from fedlib.report.figures.regret import find_regrets, notes
from fedlib.report.inputs import Inputs
from fedlib.spec import ExhibitSpec

LINE = {"color": style.FRAME, "linestyle": "--", "linewidth": 1.4}
PALE = 0.45  # opacity of a method's colour in its cells
EQUAL = 1  # the diagram calls regrets within one point of the best one equal to it


def draw(given: Inputs) -> Figure:
    """The figure."""
    exhibit, kind = given.exhibit, given.kind
    found = _place_regrets(given)
    xs, ys = sorted(found["x"].unique()), sorted(found["y"].unique())
    colors = {row["title"]: _color(exhibit, row) for row in kind.rows}
    tables = {title: 100 * _table(found, title, xs, ys) for title in colors}
    titles = [*colors]
    figure, grid = canvas.panels(["Best method", *titles], *kind.names)
    stacked = np.stack([*tables.values()])
    best = np.where(np.isnan(stacked), np.inf, stacked).argmin(0)  # number of the method [y, x]
    _draw_best(grid[0], best, stacked, [*colors.values()])
    most = float(np.ceil(np.nanmax(stacked)))
    for title, axes in zip(titles, grid[1:], strict=True):
        image = heat.draw(axes, tables[title], [""] * len(xs), most=most)
    is_drawn = all([_line(axes, kind.theory, xs, ys) for axes in grid])
    for axes in grid:
        axes.set_xticks(range(len(xs)), [exhibits.setting_text(x) for x in xs])
        axes.set_yticks(range(len(ys)), [exhibits.setting_text(y) for y in ys])
        axes.set_ylim(-0.5, len(ys) - 0.5)
    heat.scale(figure, image, grid[1:], "Regret (points)")
    shown = {titles[number] for number in best[~np.isnan(stacked).all(0)]}  # some cells are empty
    handles = [Patch(facecolor=(colors[t], PALE), label=t) for t in titles if t in shown]
    handles += [Line2D([], [], label=kind.law, **LINE)] * is_drawn
    cells = "First panel: the method of least regret by colour, and that regret; +: another is "
    cells += "within a point of it, and the colour is of the lower one."
    return canvas.finish(figure, exhibit, handles, *notes(given, found), cells)


def _place_regrets(given: Inputs) -> pd.DataFrame:
    """The chosen regrets with the parameters "x" and "y" of their federations."""
    kind = given.kind
    places = [
        (one.name, exhibits.setting(kind.x, one), exhibits.setting(kind.y, one))
        for one in given.exhibit.federations
    ]
    where = pd.DataFrame(places, columns=["federation", "x", "y"])
    return find_regrets(given).merge(where, on="federation")


def _table(found: pd.DataFrame, title: str, xs: Sequence[float], ys: Sequence[float]) -> np.ndarray:
    """A method's regrets -> [y, x]; NaN where it was not run"""
    own = exhibits.pick(found, title=title).pivot(index="y", columns="x", values="mean")
    return own.reindex(index=ys, columns=xs).to_numpy()


def _color(exhibit: ExhibitSpec, row: dict) -> str:
    looks = style.looks(exhibit)
    return next(looks[label].color for label in row["labels"] if label in looks)


def _draw_best(axes: Axes, best: np.ndarray, regrets: np.ndarray, colors: Sequence[str]) -> None:
    """Draw every cell in the colour of its best method, with that method's regret.

    Args:
      best: [y, x] number of the method.
      regrets: [methods, y, x] in points.
    """
    for (y, x), number in np.ndenumerate(best):
        least = regrets[number, y, x]
        if np.isnan(least):  # no run in this cell
            continue
        equal = (regrets[:, y, x] <= least + EQUAL).sum() > 1
        box = ([x - 0.5, x + 0.5, x + 0.5, x - 0.5], [y - 0.5, y - 0.5, y + 0.5, y + 0.5])
        axes.fill(*box, facecolor=(colors[number], PALE), edgecolor="white")
        axes.text(x, y, canvas.number(least, ".1f") + "+" * bool(equal), ha="center", va="center")
    axes.set_xlim(-0.5, best.shape[1] - 0.5)
    axes.grid(False)


def _line(axes: Axes, theory: dict, xs: Sequence[float], ys: Sequence[float]) -> bool:
    """Draw the line of theory, in a grid whose values of x grow by constant factors.

    Returns:
      Whether there is one: theory says nothing of some rows, and a line needs two.
    """
    at = {float(y): float(x) for y, x in theory.items()}
    rows = [row for row, y in enumerate(ys) if float(y) in at]
    logs = np.log([at[float(ys[row])] for row in rows])
    columns = np.arange(len(xs))
    ends = {"left": -0.5, "right": len(xs) - 0.5}
    if len(rows) > 1:
        axes.plot(np.interp(logs, np.log(np.asarray(xs, float)), columns, **ends), rows, **LINE)
    return len(rows) > 1
