"""Accuracy against the communication round, one panel per federation.

It is the accuracy of the seen clients, or of a global model on the server's examples.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.errors import DataError
from fedlib.report import exhibits, printed
from fedlib.report.figures import canvas, curves, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics import TRAFFIC

# Published numbers of the paper's curves, and their marks. Dashes stand right of a panel: a thick
# one for the end and, next to it, a thin one for the peak, whose round is mostly unknown.
MARKS = {
    "end": {"linestyle": "None", "marker": "_", "markersize": 11, "markeredgewidth": 2.0},
    "peak": {"linestyle": "None", "marker": "_", "markersize": 11, "markeredgewidth": 0.8},
    "way-point": {
        "marker": "o",
        "linestyle": "None",
        "markersize": 7,
        "markerfacecolor": "white",
        "markeredgewidth": 1.1,
    },
}
CHOSEN = {"marker": "*", "linestyle": "None", "markersize": 11, "zorder": 5}
MARKS_NOTE = "Marks are read off the paper's figure."
CHOSEN_NOTE = "Star: the round whose model validation chose, of each seed."
POINTS = ["federation", "label", "title", "column"]
POINTS += ["published", printed.ROW, "reproduced", "difference", "seeds"]
SPANS = {"end": (1.012, 1.045), "peak": (1.053, 1.086)}  # fractions of a panel's width


def draw(given: Inputs) -> Figure:
    """The figure: mean over seeds, a band over seeds, and published points of the paper's curves.

    The exhibit's own published numbers are the ends of the paper's curves.

    Raises:
      DataError: if a run has no such accuracies.
    """
    exhibit, kind = given.exhibit, given.kind
    shown, paper = curves.over_rounds(given), _paper(given)
    stars = _chosen(given) if kind.chosen else {}
    looks = style.looks(exhibit, scores=curves.scores(shown))
    figure, grid = canvas.by_federation(exhibit, "Communication round", curves.axis(kind))
    marks, focused = set(), ""
    for axes, federation in grid:
        mine, drawn = exhibits.pick(shown, federation=federation["name"]), []
        for run in exhibits.runs_of(exhibit, federation["name"]):
            curve = exhibits.pick(mine, label=run["label"])
            curves.draw_curve(axes, curve, looks[run["label"]], exhibit["runs"])
            drawn.append(curve["mean"])
            if (look := looks[run["label"]]) != style.OTHERS:
                _mark_chosen(axes, curve, stars.get((federation["name"], run["label"]), []), look)
                where = federation["dataset"], run["label"]
                marks |= _mark_published(axes, paper, where, curve, look)
        canvas.rounds_axis(axes)
        beside = (level for name in SPANS for level in paper[name].items())
        levels = [level for (where, _), level in beside if where == federation["dataset"]]
        focused = curves.focus(axes, drawn, levels) or focused
        canvas.percent_axis(axes)
    handles = [*style.method_handles(exhibit, looks), *_mark_handles(marks)]
    return canvas.finish(figure, exhibit, handles, *_notes(exhibit, looks, stars, focused, marks))


def compared(given: Inputs) -> pd.DataFrame:
    """Published points of the paper's curves with ours beside them, as means over seeds.

    Our end is at the last round, and our peak is the highest point of our curve.

    Returns:
      DataFrame of `POINTS`; "difference" as printed.
    """
    shown = curves.over_rounds(given)
    ends, peaks, passed = _paper(given).values()
    rows = []
    for federation, run in given.runs:
        where = federation["dataset"], run["label"]
        curve = exhibits.of_run(shown, run).set_index("round").sort_index()
        points = [
            ("End of curve", curve.index[-1], ends.get(where)),
            ("Peak of curve", curve["mean"].idxmax(), peaks.get(where)),
            *((f"Round {at}", at, value) for at, value in passed.get(where, ())),
        ]
        for name, at, value in points:
            if value is not None and at in curve.index:
                ours, seeds = curve.loc[at, ["mean", "seeds"]]
                off = printed.difference(ours, value)
                which = federation["name"], run["label"], run["title"], name
                rows.append((*which, value, value.row, ours, off, seeds))
    return pd.DataFrame(rows, columns=POINTS)


def _paper(given: Inputs) -> dict[str, dict]:
    """Published numbers of the curves by mark, data set and label; of way-points with rounds."""
    kind = given.kind
    return {
        "end": given.printed(kind.metric),
        "peak": printed.fractions(given.published, kind.peaks, kind.metric),
        "way-point": _waypoints(given.published, kind.waypoints, kind.metric),
    }


def _notes(exhibit: dict, looks: dict, stars: dict, focused: str, marks: set[str]) -> list[str]:
    """Sentences below the figure."""
    return [
        canvas.spread_text(exhibit, "band"),
        CHOSEN_NOTE if stars else "",
        focused,
        curves.checks_note(exhibit),
        MARKS_NOTE if marks else "",
        *(exhibits.published_note(exhibit, shown=True) if marks else ()),
        style.others_note(exhibit, looks),
    ]


def _chosen(given: Inputs) -> dict[tuple[str, str], list[float]]:
    """{(federation, label): rounds} whose models validation chose, one round per seed."""
    last = exhibits.pick(given.rows, at="last", metric="selected_round", group=TRAFFIC.group)
    return last.groupby(["federation", "label"])["value"].apply(list).to_dict()


def _mark_chosen(axes: Axes, curve: pd.DataFrame, rounds: list[float], look: style.Look) -> None:
    """Stars on a run's curve; a round without an evaluation is interpolated."""
    if rounds:
        level = np.interp(rounds, curve["round"], curve["mean"])
        axes.plot(rounds, level, color=look.color, markeredgecolor="white", **CHOSEN)


def _waypoints(published: pd.DataFrame | None, exhibit: str | None, metric: str) -> dict:
    """{(dataset, label): [(round, fraction)]} of published points of the paper's curves.

    Raises:
      DataError: if the name of one of the exhibit's metrics does not end in a round.
    """
    points: dict[tuple[str, str], list[tuple[int, printed.Number]]] = {}
    if published is None or exhibit is None:
        return points
    prefix = f"{metric}_round_"
    mine = exhibits.pick(published, exhibit=exhibit)["metric"]
    for name in mine[mine.str.startswith(prefix)].drop_duplicates():
        if not name.removeprefix(prefix).isdigit():
            raise DataError(f"way-points of {exhibit} must be {prefix}<number>, got {name!r}")
        for where, value in printed.fractions(published, exhibit, name).items():
            points.setdefault(where, []).append((int(name.removeprefix(prefix)), value))
    return points


def _mark_published(
    axes: Axes, paper: dict, where: tuple[str, str], curve: pd.DataFrame, look: style.Look
) -> set[str]:
    """Mark published numbers of the curve (data set, label) -> the `MARKS` that were drawn.

    Args:
      paper: by mark, the numbers by data set and label; of way-points, with their rounds.
    """
    drawn = set()
    passed = [(x, y) for x, y in paper["way-point"].get(where, ()) if x <= curve["round"].max()]
    if passed:
        point = MARKS["way-point"] | {"markeredgecolor": look.color}
        axes.plot(*zip(*passed, strict=True), **point, clip_on=False, zorder=4)
        drawn.add("way-point")
    for name, span in SPANS.items():
        if where in paper[name]:
            dash = {"color": look.color, "solid_capstyle": "butt", "clip_on": False}
            dash["linewidth"] = MARKS[name]["markeredgewidth"]
            level = [paper[name][where]] * 2
            axes.plot(span, level, transform=axes.get_yaxis_transform(), **dash)
            drawn.add(name)
    return drawn


def _mark_handles(marks: set[str]) -> list[Line2D]:
    """Legend entries of the marks that were drawn, in grey because they are for every method."""
    grey = {"color": style.GREY, "markeredgecolor": style.GREY}
    return [
        Line2D([], [], label=f"published {name}", **grey, **look)
        for name, look in MARKS.items()
        if name in marks
    ]
