"""Accuracy against the communication round, one panel per federation.

It is the accuracy of the seen clients, or of a global model on the server's examples. Many methods
of one federation beside published curves have a panel each.
"""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.report import exhibits, notes, printed
from fedlib.report.figures import canvas, curves, style
from fedlib.report.inputs import Inputs
from fedlib.spec import Data, ExhibitSpec

# The end of a published curve is a dash right of the panel.
END = {"linestyle": "None", "marker": "_", "markersize": 11, "markeredgewidth": 2.0}
END_SPAN = (1.012, 1.045)  # fractions of a panel's width
THIN = {"linewidth": 0.9, "alpha": 0.75}  # a published curve
MUCH = 0.02  # nearer than its own published curve
STEEP = 10  # curves are compared from this round on: before, a round is several points
FAR_LOOK = {"ha": "right", "fontsize": "small", "color": style.GREY}
ABOUT_FAR = f"Distance of published curves from round {STEEP} on, root mean square, points"
MARKS_NOTE = "What is published is read off the paper's figure, straight where curves hide others."
POINTS = ["federation", "label", "title", "column"]
POINTS += ["published", printed.ROW, "reproduced", "difference", "seeds"]
FAR = ["data", "label", "title", "rounds", "rms", "nearest", "nearest_rms"]


def draw(given: Inputs) -> Figure:
    """The figure: mean over seeds, a band over seeds, and published points of the paper's curves.

    The exhibit's own published numbers are the ends of the paper's curves.

    Raises:
      DataError: if a run has no such accuracies.
    """
    exhibit, kind = given.exhibit, given.kind
    shown, there = curves.over_rounds(given), {(x.dataset, run.label) for x, run in given.runs}
    ends = {where: end for where, end in given.paper_numbers(kind.metric).items() if where in there}
    looks = style.looks(exhibit, curves.scores(shown))
    if style.OTHERS in looks.values() and len(exhibit.federations) == 1 and len(distances(given)):
        return _apart(given, shown, ends)
    figure, grid = canvas.by_federation(exhibit, "Communication round", curves.axis(kind))
    marks, focused = set(), ""
    for axes, federation in grid:
        mine, drawn = exhibits.pick(shown, federation=federation.name), []
        levels = [level for (where, _), level in ends.items() if where == federation.dataset]
        for run in exhibits.runs_of(exhibit, federation.name):
            curve = exhibits.pick(mine, label=run.label)
            curves.draw_curve(axes, curve, looks[run.label], exhibit.runs)
            drawn.append(curve["mean"])
            if (look := looks[run.label]) != style.OTHERS:
                theirs = _theirs(given, federation).get(run.label, pd.Series())
                theirs = theirs[theirs.index <= curve["round"].max()]
                if len(theirs) > 1:
                    axes.plot(theirs, color=look.color, label=f"{run.title}, published", **THIN)
                    marks.add("curve")
                    drawn.append(theirs)
                marks |= _mark_end(axes, ends.get((federation.dataset, run.label)), look)
        canvas.rounds_axis(axes)
        focused = curves.focus(axes, drawn, levels) or focused
        canvas.percent_axis(axes)
    handles = [*style.method_handles(exhibit, looks), *_mark_handles(marks)]
    far = _far_note(distances(given))
    return canvas.finish(figure, exhibit, handles, *_notes(exhibit, looks, focused, marks), far)


def _apart(given: Inputs, shown: pd.DataFrame, ends: dict) -> Figure:
    """A panel for each run: over all others, in grey, its curve and the published one."""
    exhibit, [federation] = given.exhibit, given.exhibit.federations
    looks, titles = style.looks(exhibit), exhibits.titles(exhibit)
    ours = {label: exhibits.pick(shown, label=label) for label in titles}
    theirs, far = _theirs(given, federation), distances(given).set_index("label")
    drawn = [*(curve["mean"] for curve in ours.values()), *(theirs[label] for label in far.index)]
    names = "Communication round", curves.axis(given.kind)
    figure, grid = canvas.panels([*titles.values()], *names)
    marks, focused = {"curve"}, ""
    for axes, label in zip(grid, titles, strict=True):
        for other in (name for name in titles if name != label):
            curves.draw_curve(axes, ours[other], style.OTHERS, exhibit.runs)
        if label in far.index:
            named = {"color": looks[label].color, "label": f"{titles[label]}, published"}
            axes.plot(theirs[label], **named, **THIN)
            text = _far_text(far.loc[label], titles).replace(" (", "\n(")
            axes.text(0.98, 0.05, text, transform=axes.transAxes, **FAR_LOOK)
        curves.draw_curve(axes, ours[label], looks[label], exhibit.runs)
        marks |= _mark_end(axes, ends.get((federation.dataset, label)), looks[label])
        canvas.rounds_axis(axes)
        focused = curves.focus(axes, drawn, [*ends.values()]) or focused
        canvas.percent_axis(axes)
    others = Line2D([], [], label="our other curves", **style.OTHERS.curve())
    handles, said = [others, *_mark_handles(marks)], _notes(exhibit, looks, focused, marks)
    about = f"Numbers in panels: {ABOUT_FAR[0].lower()}{ABOUT_FAR[1:]}."
    return canvas.finish(figure, exhibit, handles, *said, about)


def compared(given: Inputs) -> pd.DataFrame:
    """Published points of the paper's curves with ours beside them, as means over seeds.

    Our end is at the last round, and our peak is the highest point of our curve.

    Returns:
      DataFrame of `POINTS`; "difference" as printed.
    """
    shown, kind = curves.over_rounds(given), given.kind
    ends = given.paper_numbers(kind.metric)
    peaks = printed.fractions(given.published, kind.peaks, kind.metric)
    passed = _waypoints(given.published, kind.waypoints, kind.metric)
    rows = []
    for federation, run in given.runs:
        where = federation.dataset, run.label
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
                which = federation.name, run.label, run.title, name
                rows.append((*which, value, value.row, ours, off, seeds))
    return pd.DataFrame(rows, columns=POINTS)


def distances(given: Inputs) -> pd.DataFrame:
    """How far published curves are from ours, from round `STEEP` on.

    Returns:
      DataFrame of `FAR`: the rounds of a run's own published curve and ours, their root mean square
      difference, and the label and difference of the published curve that is nearest to ours.
    """
    shown, rows = curves.over_rounds(given), []
    for federation, run in given.runs:
        ours = exhibits.of_run(shown, run).set_index("round")["mean"]
        off = {name: (x - ours).dropna() for name, x in _theirs(given, federation).items()}
        off = {name: x[x.index >= STEEP] for name, x in off.items()}
        rms = {name: float((x**2).mean() ** 0.5) for name, x in off.items() if len(x) >= STEEP}
        if run.label in rms:
            nearest = min(rms, key=rms.__getitem__)
            own = len(off[run.label]), rms[run.label]
            about = federation.title, run.label, run.title
            rows.append((*about, *own, nearest, rms[nearest]))
    return pd.DataFrame(rows, columns=FAR)


def _theirs(given: Inputs, federation: Data) -> dict[str, pd.Series]:
    """The paper's curves on a federation's data set, by label: accuracies by round."""
    if given.curves is None or given.kind.metric != "accuracy":
        return {}
    mine = exhibits.pick(given.curves, dataset=federation.dataset)
    return {label: part.set_index("round")["accuracy"] for label, part in mine.groupby("label")}


def _far_note(far: pd.DataFrame) -> str:
    """A sentence about `distances`, data set by data set; "" without any."""
    titles, parts = dict(zip(far["label"], far["title"], strict=True)), []
    for data, mine in far.groupby("data", sort=False):
        texts = [f"{row['title']} {_far_text(row, titles)}" for row in mine.to_dict("records")]
        parts.append(f"{data}: {', '.join(texts)}")
    return f"{ABOUT_FAR}: {'; '.join(parts)}." if parts else ""


def _far_text(row: Mapping, titles: Mapping[str, str]) -> str:
    """A row of `distances` in points, with the nearest published curve if it is much nearer."""
    text = canvas.number(100 * row["rms"], ".1f")
    if row["rms"] - row["nearest_rms"] > MUCH:
        of, off = row["nearest"], 100 * row["nearest_rms"]
        nearest = titles.get(of) or exhibits.method_title(of.replace("-", "_"))
        text += f" (that of {nearest} {canvas.number(off, '.1f')})"
    return text


def _notes(exhibit: ExhibitSpec, looks: dict, focused: str, marks: set[str]) -> list[str]:
    """Sentences below the figure."""
    return [
        canvas.spread_text(exhibit, "band"),
        focused,
        curves.checks_note(exhibit),
        MARKS_NOTE if marks else "",
        *(notes.comparison(exhibit, shown=True) if marks else ()),
        style.others_note(exhibit, looks),
    ]


def _waypoints(published: pd.DataFrame | None, exhibit: str | None, metric: str) -> dict:
    """{(dataset, label): [(round, fraction)]} of published points of the paper's curves."""
    points: dict[tuple[str, str], list[tuple[int, printed.Value]]] = {}
    if published is None or exhibit is None:
        return points
    prefix = f"{metric}_round_"
    mine = exhibits.pick(published, exhibit=exhibit)["metric"]
    for name in mine[mine.str.startswith(prefix)].drop_duplicates():
        for where, value in printed.fractions(published, exhibit, name).items():
            points.setdefault(where, []).append((int(name.removeprefix(prefix)), value))
    return points


def _mark_end(axes: Axes, end: float | None, look: style.Look) -> set[str]:
    """Mark the end of a published curve, if it is known -> the marks that were drawn."""
    if end is None:
        return set()
    dash = {"color": look.color, "solid_capstyle": "butt", "clip_on": False}
    dash["linewidth"] = END["markeredgewidth"]
    axes.plot(END_SPAN, [end] * 2, transform=axes.get_yaxis_transform(), **dash)
    return {"end"}


def _mark_handles(marks: set[str]) -> list[Line2D]:
    """Legend entries of the marks that were drawn, in grey because they are for every method."""
    grey = {"color": style.GREY, "markeredgecolor": style.GREY}
    return [
        Line2D([], [], label=f"published {name}", **grey, **look)
        for name, look in {"curve": THIN, "end": END}.items()
        if name in marks
    ]
