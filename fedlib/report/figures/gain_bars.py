"""Bars of metrics on one federation, and on top the gain on another.

For reserved data mostly of one class, compared with reserved data of all classes in equal shares.

Source: J. Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025, Figure 4.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedlib.report import exhibits, notes, printed
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.definitions import SERVER
from fedlib.report.metrics.seeds import over_seeds
from fedlib.spec import ExhibitSpec
from fedlib.spec.figures import GainBar

WIDTH = 0.8  # of a metric's group of bars, as a share of the distance between groups
GAIN = (
    "On the test examples of the server, in the state that the method predicts with: the chosen "
    "one, or else the last. Numbers: the gain, in points."
)
PRINTED = {"linestyle": "None", "marker": "D", "markersize": 4, "color": style.GREY}

KEY = ["federation", "label", "metric"]


def draw(given: Inputs) -> Figure:
    """The figure, a panel per pair of federations.

    Pairs are left out if one of their federations is not in the exhibit.
    """
    exhibit, kind = given.exhibit, given.kind
    groups = kind.entries("bars")
    there = {federation.name: federation for federation in exhibit.federations}
    shown = [[there[x] for x in pair] for pair in kind.entries("pairs") if {*pair} <= there.keys()]
    last = exhibits.pick(given.rows, **SERVER._asdict(), at="last")
    found = over_seeds(last, KEY).set_index(KEY)
    looks = style.looks(exhibit)
    ylabel = f"{', '.join(bar.title for bar in groups)} (%)"
    figure, grid = canvas.panels([below.family for below, _ in shown], "", ylabel)
    marked = False
    for axes, (below, above) in zip(grid, shown, strict=True):
        labels = [run.label for run in exhibits.runs_of(exhibit, below.name)]
        for number, label in enumerate(labels):
            x = np.arange(len(groups)) + ((number + 0.5) / len(labels) - 0.5) * WIDTH
            ends = [_values(found, one.name, label, groups) for one in (below, above)]
            _draw(axes, x, WIDTH / len(labels), ends, looks[label].color)
            theirs = _find_published(given, (below.dataset, label), groups)
            marked |= _mark(axes, x, theirs, kind.names)
            _number(axes, x, ends, theirs)
        axes.set_xticks(range(len(groups)), [bar.title for bar in groups])
        axes.set_ylim(0, 1.12)  # room for the numbers above the bars
        axes.grid(False, axis="x")
        canvas.percent_axis(axes)
    said = canvas.spread_text(exhibit, "whisker"), *notes.comparison(exhibit, shown=marked)
    handles = _handles(exhibit, looks, kind.names, marked)
    return canvas.finish(figure, exhibit, handles, GAIN, *said)


def _values(
    found: pd.DataFrame, federation: str, label: str, groups: list[GainBar]
) -> pd.DataFrame:
    """One row per group of bars, with mean, low and high; NaN where there are no values."""
    index = [(federation, label, bar.metric) for bar in groups]
    return found.reindex(index)[["mean", "low", "high"]].reset_index(drop=True)


def _draw(axes: Axes, x: np.ndarray, width: float, ends: list[pd.DataFrame], color: str) -> None:
    """Draw a run's bars: the first federation's filled, the second's as an outline."""
    below, above = ends
    axes.bar(x, below["mean"], width, facecolor=(color, 0.75), edgecolor=color, linewidth=0.8)
    axes.bar(x, above["mean"], width, facecolor="none", edgecolor=color, linewidth=1.2,
             linestyle=style.DASHED)  # fmt: skip
    spread = [below["mean"] - below["low"], below["high"] - below["mean"]]
    if (below["high"] > below["low"]).any():
        axes.errorbar(x, below["mean"], spread, linestyle="None", **style.WHISKER)


def _number(axes: Axes, x: np.ndarray, ends: list[pd.DataFrame], theirs: np.ndarray) -> None:
    """Write the gains over the bars and their marks."""
    below, above = ends
    gains = 100 * (above["mean"] - below["mean"])
    tops = np.fmax(np.fmax(below["high"], above["mean"]), np.nan_to_num(theirs).max(0))
    for place, top, gain in zip(x, tops, gains, strict=True):
        if np.isfinite(gain):
            above = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center"}
            axes.annotate(canvas.number(gain, "+.1f"), (place, top), **above)


def _find_published(given: Inputs, where: tuple[str, str], groups: list[GainBar]) -> np.ndarray:
    """Published numbers, below and above -> [2, groups of bars]; NaN where there is none."""
    names = [bar.printed or bar.metric for bar in groups]
    gains = [printed.fractions(given.published, given.kind.gains or None, name) for name in names]
    below = np.array([given.paper_numbers(name).get(where, np.nan) for name in names])
    return np.array([below, below + [gain.get(where, np.nan) for gain in gains]])


def _mark(axes: Axes, x: np.ndarray, theirs: np.ndarray, names: list[str]) -> bool:
    """Draw published numbers, solid below and hollow above; whether there were any."""
    for numbers, face, name in zip(theirs, (style.GREY, "white"), names, strict=True):
        axes.plot(x, numbers, **PRINTED, markerfacecolor=face, label=f"published, {name}")
    return bool(np.isfinite(theirs[0]).any())


def _handles(exhibit: ExhibitSpec, looks: dict, names: list[str], marked: bool) -> list:
    below, above = names
    titles, color = exhibits.titles(exhibit), style.GREY
    found = [_patch(title, looks[label].color) for label, title in titles.items()]
    if len(found) == 1:  # its title need not be told from others
        color = found.pop().get_edgecolor()
    found.append(_patch(below, color))
    found.append(Patch(label=above, facecolor="none", linestyle=style.DASHED, edgecolor=color))
    if marked:
        for name, face in ((below, style.GREY), (above, "white")):
            entry = Line2D([], [], label=f"published, {name}", **PRINTED, markerfacecolor=face)
            found.append(entry)
    return found


def _patch(label: str, color: str) -> Patch:
    return Patch(label=label, facecolor=(color, 0.75), edgecolor=color)
