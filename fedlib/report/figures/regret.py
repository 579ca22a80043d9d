"""Methods by made-up federations: points below the best possible accuracy.

A frame marks a federation that satisfies the method's assumptions ("at home"); the best method of a
federation is bold.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from fedlib.errors import DataError
from fedlib.report.choices import Choice, choices, of_clients, rows_of
from fedlib.report.figures import canvas, heat, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.report.metrics.seeds import over_seeds
from fedlib.results import OPTIMUM

ROW = 0.26  # inches
DARK = 0.55  # share of the darkest shade above which numbers are white
HOME = {"fill": False, "edgecolor": style.FRAME, "linewidth": 1.6}


def draw(given: Inputs) -> Figure:
    """The figure."""
    exhibit, rows = given.exhibit, given.kind.rows
    found = find_regrets(given)
    federations = {one.name: one.title for one in exhibit.federations}
    titles = [row["title"] for row in rows]
    table = found.pivot(index="title", columns="federation", values="mean")
    table = 100 * table.reindex(index=titles, columns=[*federations])
    figure, [axes] = canvas.panels([""], "", "", columns=1, height=1 + ROW * len(titles))
    most = float(np.ceil(np.nanmax(table.to_numpy())))
    image = heat.draw(axes, table.to_numpy(), [*federations.values()], most=most)
    axes.set_yticks(range(len(titles)), titles)
    axes.tick_params(length=0)
    _number(axes, table, most)
    for y, row in enumerate(rows):
        for x in (x for x, name in enumerate(federations) if name in row["home"]):
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, clip_on=False, **HOME))
    heat.scale(figure, image, [axes], "Regret (points)")
    handles = [Patch(label="at home: the world is as the method assumes", **HOME)]
    return canvas.finish(figure, exhibit, handles, *notes(given, found))


def find_regrets(given: Inputs) -> pd.DataFrame:
    """A row for each method and federation that it ran on.

    Returns:
      Columns "federation", "title" (of the method), "label" (of the run; "" if every client
      chose its own), and "mean", "low" and "high" of the regret, see `over_seeds`.

    Raises:
      DataError: if a run has no regret, because its federation has no known best accuracy.
    """
    rows = pd.concat(
        _by_seed(given, choice).assign(**choice.about, label=choice.label)
        for choice in choices(given, given.kind.rows)
    )
    return over_seeds(rows, ["federation", "title", "label"])


def _by_seed(given: Inputs, choice: Choice) -> pd.DataFrame:
    """The regret of a run, or of the clients' own choices: columns "seed" and "value"."""
    if choice.picks:
        mine = of_clients(given, choice)
        regret = (mine[OPTIMUM] - mine["accuracy"]).groupby(mine["seed"]).mean()
        return regret.rename("value").reset_index()
    found = rows_of(given, choice, at="last", metric="regret", **PRIMARY._asdict())
    if found.empty:
        raise DataError(
            f"{choice.federation.name}/{choice.label} has no regret: nobody knows the best "
            "accuracy on its data"
        )
    return found[["seed", "value"]]


def notes(given: Inputs, found: pd.DataFrame) -> list[str]:
    """Notes on how to read the numbers."""
    worst = found["high"] - found["mean"]
    spread = f"The worst seed is up to {100 * worst.max():.1f} points above the mean."
    return [
        "Regret: the best possible accuracy less the method's, both in expectation over the label; "
        "low is good, and 0 cannot be beaten.",
        *([spread] if len(given.exhibit.seeds) > 1 else []),
    ]


def _number(axes: Axes, table: pd.DataFrame, most: float) -> None:
    """Write every regret into its cell; the lowest of a column, as written, are bold."""
    values = table.to_numpy()
    least = np.nanmin(values, axis=0)
    for (y, x), value in np.ndenumerate(values):
        text = "–" if np.isnan(value) else canvas.number(value, ".1f")
        color = "white" if value > DARK * most else "#262626"
        weight = "bold" if text == canvas.number(least[x], ".1f") else "normal"
        axes.text(x, y, text, ha="center", va="center", color=color, fontweight=weight)
