"""The wall as Markdown, and the picture above it."""

import math
import os
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox
from tabulate import tabulate

from fedlib.report.figures import canvas, saving, style
from fedlib.report.looks import paper_color
from fedlib.report.pages import filling
from fedlib.report.pages.contents import NEAR
from fedlib.report.tables.of_server import ALL
from fedlib.report.tables.render import ABSENT, markdown, percent, points
from fedlib.report.wall.pairs import pick_exchanged

PICTURE = "published"  # .svg and .png beside the page
WHERE = ["dataset", "exhibit", "metric"]  # parts of the head of a column


def text(cells: pd.DataFrame, estimated_on: str) -> str:
    """The page.

    Args:
      cells: published numbers; see `fedlib.report.wall.pairs.beside`, with paper_title, row (the
        head of a number's row), and machine, hours, estimate and page of those that were run.
      estimated_on: the machine of estimated core-hours.
    """
    run = cells[cells["seeds"] > 0]
    own = run[run["federation"] != ALL]  # an average of columns is of their trainings
    off, other = run[run["difference"].abs() > NEAR], pick_exchanged(cells)
    return filling.markdown(
        "wall.md.j2",
        {"listed": _list, "grid": grid, "points": points},
        picture=PICTURE,
        cells=cells,
        run=run,
        near=len(run) - len(off),
        exchanged=other,
        near_exchanged=len(run) - len(off) + _more(other),
        trainings=int(own.groupby(["paper", "federation", "run"])["seeds"].max().sum()),
        split=int(run["is_split"].sum()),
        off=off,
        estimated_on=markdown(estimated_on),
    )


def _more(exchanged: pd.DataFrame) -> int:
    """How many more numbers are near if their names are exchanged."""
    now, before = (exchanged[name].abs() <= NEAR for name in ("difference", "as_printed"))
    return int(now.sum() - before.sum())


def _list(run: pd.DataFrame) -> str:
    """A row for each cell that was run."""
    heads = ["Paper", "Cell", "Method", "Published", "Ours", "Difference", "Seeds"]
    heads += ["Core-hours", "Estimated", "Machine"]
    rows = [
        [
            f"[{markdown(row['paper_title'])}]({row['page']})",
            markdown(f"{row['data']}, {row['measured']}"),
            markdown(row["title"]),
            percent(row["published"]),
            f"**{percent(row['reproduced'])}**",
            points(row["difference"]),
            int(row["seeds"]),
            _hours(row["hours"]),
            _hours(row["estimate"]),
            markdown(row["machine"] or ABSENT),
        ]
        for row in run.to_dict("records")
    ]
    align = ["left"] * 3 + ["right"] * 6 + ["left"]
    return tabulate(rows, heads, "pipe", disable_numparse=True, colalign=align)


def grid(numbers: pd.DataFrame) -> str:
    """The numbers of a source: methods by whatever else tells them apart."""
    start = len(os.path.commonprefix([*numbers["exhibit"]]).rpartition("-")[0])
    numbers = numbers.assign(exhibit=numbers["exhibit"].str[start:].str.removeprefix("-"))
    parts = [name for name in WHERE if numbers[name].nunique() > 1] or WHERE[:1]
    heads = [", ".join(row) for row in numbers[parts].itertuples(index=False)]
    texts = [_text(row) for row in numbers.to_dict("records")]
    table = numbers.assign(text=texts, head=heads)
    found = table.pivot_table("text", "row", "head", aggfunc="; ".join, sort=False).fillna(ABSENT)
    lines = [[markdown(head), *texts] for head, *texts in found.itertuples(name=None)]
    return tabulate(lines, ["", *map(markdown, found.columns)], "pipe", disable_numparse=True)


def _text(row: dict) -> str:
    ours = f" **{percent(row['reproduced'])}** {points(row['difference'])}" if row["seeds"] else ""
    return percent(row["published"]) + ours


def _hours(hours: float) -> str:
    """Core-hours with two digits."""
    if pd.isna(hours):
        return ABSENT
    return f"{hours:.1f}" if hours < 10 else f"{float(f'{hours:.2g}'):,.0f}"


def draw(run: pd.DataFrame, *files: Path) -> None:
    """Published against reproduced numbers: a point for each, a colour for each paper."""
    with style.use_style():
        figure = Figure(figsize=(canvas.WIDTH * 0.8, canvas.WIDTH * 0.88), layout="constrained")
        axes = figure.subplots()
        numbers = 100 * run[["published", "reproduced"]]
        low = 10 * (numbers.min().min() // 10) if len(run) else 0
        _draw_points(axes, run, [low, 101])
        handles = []
        for (key, paper), shown in run.groupby(["paper", "paper_title"]):
            near = int((shown["difference"].abs() <= NEAR).sum())
            name = f"{paper}: {near} of {len(shown)} within two points"
            look = {"color": paper_color(key), "marker": "o", "linestyle": ""}
            handles.append(Line2D([], [], label=name, **look))
        if run["is_split"].any():
            look = {"color": style.GREY, "marker": "o", "mfc": "white", "linestyle": ""}
            handles.append(Line2D([], [], label="hollow: on EMNIST's test split alone", **look))
        axes.set(xlabel="Published (%)", ylabel="Reproduced (%)")
        figure.legend(handles=handles, loc="outside upper left", borderpad=0.8)
        _name(axes, run, low + 20)
    saving.save(figure, *files)


def _draw_points(axes: Axes, run: pd.DataFrame, ends: list[float]) -> None:
    """The points of a square, the line on which both are equal, and the band around it."""
    band = [[x + 100 * off for x in ends] for off in (-NEAR, NEAR)]
    axes.fill_between(ends, *band, color="#EEEEEE", lw=0)
    axes.plot(ends, ends, color=style.GREY, linewidth=0.8)
    for (paper, is_split), some in run.groupby(["paper", "is_split"]):
        color, places = paper_color(paper), (100 * some["published"], 100 * some["reproduced"])
        axes.scatter(*places, 18, "white" if is_split else color, edgecolors=color, zorder=3)
    axes.set(xlim=ends, ylim=ends, aspect="equal")


def _name(axes: Axes, run: pd.DataFrame, middle: float) -> None:
    """Name points that are off: to their left above the line and right of `middle`, else right.

    A name that would leave the axes, or lie on a point, another name or the diagonal, stands a
    little higher or lower, on the other side, or under the point. Long names, which have fewer
    such places, come first.

    Points of a method, or of several by one measure, that are less than one percentage point apart
    have one name. It has the measure if the method has points by several.
    """
    names: dict[tuple[float, float], tuple[list[str], list[str]]] = {}
    several = run.groupby(["paper", "title"])["measured"].transform("nunique") > 1
    points = run.assign(by=run["measured"].where(several, ""))[run["difference"].abs() > NEAR]
    columns = points[["title", "by", "published", "reproduced"]]
    for title, measured, published, reproduced in columns.itertuples(index=False):
        here = 100 * published, 100 * reproduced
        near = [
            there
            for there, (titles, by) in names.items()
            if math.dist(there, here) < 1 and (titles == [title] or by == [measured])
        ]
        titles, by = names.setdefault(near[0] if near else here, ([], []))
        titles.extend({title} - {*titles})
        by.extend({measured} - {*by})
    axes.figure.draw_without_rendering()  # else the places of points are not known
    places = axes.transData.transform(100 * run[["published", "reproduced"]])
    diagonal = axes.transAxes.transform([(x / 200, x / 200) for x in range(201)])
    taken = [Bbox([place, place]) for place in diagonal]
    taken += [Bbox([place, place]).padded(0.035 * axes.figure.dpi) for place in places]
    texts = {at: ", ".join(map(" and ".join, filter(any, two))) for at, two in names.items()}
    for (x, y), text in sorted(texts.items(), key=lambda pair: -len(pair[1])):
        first = -1 if y > x > middle else 1
        look = {"va": "center", "fontsize": "x-small", "in_layout": False}
        name = axes.annotate(text, (x, y), (0, 0), textcoords="offset points", **look)
        beside = [(x, up) for x in (first, -first) for up in (0, 2, -2, 4, -4, 6, -6, 8, -8)]
        for side, lift in [*beside, (0, -9)]:
            name.set(position=(5 * side, lift), ha=("center", "left", "right")[side])
            box = name.get_window_extent()
            if axes.bbox.x0 < box.x0 and box.x1 < axes.bbox.x1 and not box.count_overlaps(taken):
                break
        taken.append(box)
