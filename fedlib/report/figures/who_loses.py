"""Every client's gain over training alone, by method and federation.

A strip is a method on a federation, with its clients sorted from the one that loses most to the one
that gains most. Left of the black line, clients are worse off than alone, by more than chance.
"""

import textwrap

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.report import contrasts
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs

ROW = 0.25  # inches
HEADS = 90  # letters that fit above all strips
LETTER, LINE = 0.06, 0.15  # inches
SLICES = 20  # shades of a strip, each the mean of a twentieth of the clients
WIDTH = SLICES + 1  # of a strip and the gap after it
FEW = 0.5 / SLICES  # share of clients for which no line is drawn
SHADES = {"cmap": "RdBu", "vmin": -50, "vmax": 50}  # points
HURT = {"color": "black", "linewidth": 1.2}


def draw(given: Inputs) -> Figure:
    """The figure; on top are the methods that leave the smallest share of clients worse off."""
    exhibit, kind = given.exhibit, given.kind
    found = contrasts.gains(given, kind.rows, kind.alone)
    groups = found[found["title"] != kind.alone].groupby(["title", "federation"])
    names = {one.name: one.title for one in exhibit.federations}
    hurt = groups["hurt"].mean().unstack()[[*names]]
    hurt = hurt.loc[hurt.mean(axis=1).sort_values(kind="stable").index]
    heads, rotation, room = _heads([*names.values()])
    figure, [axes] = canvas.panels([""], columns=1, height=0.3 + room + ROW * len(hurt))
    strips = groups["gain"].apply(sliced)
    empty = np.full(WIDTH, np.nan)
    table = [np.concatenate([strips.get((t, n), empty) for n in names]) for t in hurt.index]
    image = axes.imshow(100 * np.array(table), **SHADES, aspect="auto", interpolation="none")
    _mark(axes, hurt.to_numpy())
    places = WIDTH * np.arange(len(heads)) + SLICES / 2 - 0.5
    axes.set_xticks(places, heads, size=style.SMALL, rotation=rotation)
    _name(axes, hurt.mean(axis=1), WIDTH * len(heads) - 1.5)
    bar = figure.colorbar(image, ax=axes, aspect=25, pad=0.01, extend="both")
    bar.ax.yaxis.set_major_formatter(lambda value, _: canvas.number(value, "+g" if value else "g"))
    bar.set_label(f"Points above {kind.alone}")
    return canvas.finish(
        figure,
        exhibit,
        [Line2D([], [], label=f"clients left of the line are worse off than {kind.alone}", **HURT)],
        "Test accuracy after the last round. Clients of all seeds together, from the one that "
        f"loses most to the one that gains most, in {SLICES} groups of equal size.",
        "Worse off: by more than a standard error of the difference. On the right is their share, "
        f"the mean over federations; up to {FEW:.1%} have no line.",
    )


def sliced(gains: pd.Series) -> np.ndarray:
    """Means of the sorted gains in slices of equal size, and a gap -> [WIDTH]

    A client on the border of two slices counts in both with its parts.
    """
    parts = np.repeat(np.sort(gains), SLICES).reshape(SLICES, -1)
    return np.append(parts.mean(1), np.nan)


def _mark(axes: Axes, hurt: np.ndarray) -> None:
    """Draw the line in each strip with more than a few clients who are worse off."""
    rows, columns = np.nonzero(hurt > FEW)
    places = WIDTH * columns + SLICES * hurt[rows, columns] - 0.5
    axes.vlines(places, rows - 0.5, rows + 0.5, **HURT)


def _heads(titles: list[str]) -> tuple[list[str], int, float]:
    """Names of federations, turned if a word is too long: text, rotation, height in inches."""
    letters = HEADS // len(titles)
    if letters < max(len(word) for title in titles for word in title.split()):
        return titles, 90, LETTER * max(map(len, titles))
    lines = [textwrap.wrap(title, letters) for title in titles]
    return ["\n".join(each) for each in lines], 0, LINE * max(map(len, lines))


def _name(axes: Axes, hurt: pd.Series, right: float) -> None:
    """Name methods on the left, and their shares of clients at the `right` end."""
    axes.set_yticks(range(len(hurt)), hurt.index)
    shares = axes.secondary_yaxis("right")
    shares.set_yticks(range(len(hurt)), [f"{100 * share:.0f} %" for share in hurt])
    axes.text(right, -0.75, " worse\n off", size=style.SMALL, va="bottom")
    axes.xaxis.tick_top()
    axes.set_xlim(-0.5, right)
    axes.set_yticks(np.arange(len(hurt) - 1) + 0.5, minor=True)
    axes.grid(False)
    axes.grid(which="minor", axis="y", color="white", linewidth=2.5)
    for side in (axes, shares):
        side.tick_params(length=0, which="both")
        side.spines[:].set_visible(False)
