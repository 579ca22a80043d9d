"""Bars of experts in the order of how much they are used, which makes seeds comparable.

An expert's number means nothing from one seed to the next; its rank does.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedlib.errors import ConfigError
from fedlib.report import comparisons, exhibits
from fedlib.report.figures import layout, style
from fedlib.report.metrics import PRIMARY

FILLS = (  # of the variants: full, and then ever paler
    {"alpha": 1.0},
    {"alpha": 0.35},
    {"alpha": 0.15},
)


def in_order(exhibit: dict, federation: str, kinds: comparisons.Variants) -> list[dict]:
    """The runs on a federation, one per variant.

    Raises:
      ConfigError: if it has not exactly one run of each.
    """
    runs = exhibits.runs_of(exhibit, federation)
    found = [kinds.of[federation, run["label"]] for run in runs]
    if sorted(found) != list(range(len(kinds.titles))):
        raise ConfigError(
            f"{federation} must have one run of each variant ({', '.join(kinds.titles)}), got "
            f"{', '.join(run['label'] for run in runs)}"
        )
    return [runs[found.index(number)] for number in range(len(kinds.titles))]


def at_the_end(exhibit: dict, clients: pd.DataFrame, group: str) -> pd.DataFrame:
    """The rows of that group's clients at the end of every run, in its default protocol."""
    where = {"at": "last", "protocol": PRIMARY.protocol, "split": PRIMARY.split, "group": group}
    return exhibits.pick(exhibits.select(exhibit, clients), **where)


def of_variants(
    exhibit: dict,
    clients: pd.DataFrame,
    federation: str,
    kinds: comparisons.Variants,
    measure: Callable[[pd.DataFrame, dict], np.ndarray],
) -> list[np.ndarray]:
    """What `measure(clients, run)` finds in the clients of each run -> one [seeds, E] per variant

    Raises:
      ConfigError: see `in_order`.
    """
    here = exhibits.pick(clients, federation=federation)
    runs = in_order(exhibit, federation, kinds)
    return [measure(exhibits.pick(here, label=run["label"]), run) for run in runs]


def finish(figure: Figure, exhibit: dict, entries: list, what: str) -> None:
    """Add the legend, and say what the bars are and what the whiskers."""
    whisker = layout.spread_text(exhibit, "whisker")
    layout.finish(figure, exhibit, entries, what, whisker, *comparisons.selection_note(exhibit))


def draw_bars(axes: Axes, values: list[np.ndarray], color: str) -> None:
    """Groups of bars at 1, 2, ...: means over seeds, and whiskers from smallest to largest.

    Args:
      values: [seeds, E] of each variant; fewer columns for a variant with fewer experts.
      color: of all bars.
    """
    width = 0.8 / len(values)
    for number, found in enumerate(values):
        offset = (number - (len(values) - 1) / 2) * width
        x, mean = np.arange(1, found.shape[1] + 1) + offset, found.mean(axis=0)
        axes.bar(x, mean, width, **bar(number, color))
        if len(found) > 1:
            spread = [mean - found.min(axis=0), found.max(axis=0) - mean]
            whisker = {"ecolor": "#262626", "elinewidth": 0.9, "capsize": 2}
            axes.errorbar(x, mean, spread, linestyle="None", **whisker)
    most = max(found.shape[1] for found in values)
    axes.set(xlim=(0.4, most + 0.6), ylim=(0, None), xticks=range(1, most + 1))
    axes.grid(False, axis="x")


def bar(number: int, color: str) -> dict:
    """Keyword arguments of a bar or patch of that variant."""
    alpha = FILLS[number % len(FILLS)]["alpha"]
    return {"facecolor": (color, alpha), "edgecolor": color, "linewidth": 0.8}


def handles(titles: list[str], color: str = style.GREY) -> list[Patch]:
    """Legend entries of the variants."""
    return [Patch(label=title, **bar(number, color)) for number, title in enumerate(titles)]
