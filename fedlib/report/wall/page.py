"""The wall as Markdown, and the picture above it."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from tabulate import tabulate

from fedlib.report.figures import canvas, saving, style
from fedlib.report.looks import paper_color
from fedlib.report.pages.contents import NEAR
from fedlib.report.tables.render import ABSENT, markdown, percent, points

PICTURE = "published"  # .svg and .png beside the page
HEAD = f"""\
# At the papers' own settings: every published number

<!-- Written by `make wall`. -->

![Published against reproduced numbers; on the line both are equal, and the band is two points
wide]({PICTURE}.png)

([as a vector]({PICTURE}.svg))
"""
HOW = """\
Scale full has the papers' data, models, rounds and clients. `make reproduce` runs a cell with, for
instance,

    make reproduce CONFIG="papers=[pfedmm] federations=[emnist] labels=[fedavg] seeds=[0]"

`make plan` with the same configuration and `SCALE=full` says first what it costs where you are;
`budget=10h` buys whole cells, and `share=2/5` is the part of one machine of five. `make gather`
brings runs of several machines together, `make keep` adds them to a page, and `make wall` writes
this page again ([the workflow](../../workflow.md#several-machines)).
"""
READ = """\
In percent. A cell that was run has the published number, **ours**, and the difference in points.
Another one has the published number, and the estimated core-hours of one seed where there is an
estimate.
"""


def text(cells: pd.DataFrame, estimated_on: str, unpacked: Iterable[str]) -> str:
    """The page.

    Args:
      cells: DataFrame paper_title, table, table_title, data, head, title, published,
        reproduced, difference, seeds (0 if it was not run), machine, hours, page.
      estimated_on: the machine of estimated core-hours.
      unpacked: pages whose packs have no runs.
    """
    run = cells[cells["seeds"] > 0]
    near = int((run["difference"].abs() <= NEAR).sum())
    costs = f" Estimates are for {estimated_on}." if estimated_on else ""
    parts = [
        HEAD,
        f"**{len(run)} of {len(cells)} cells were run; {near} of these are within two points.** A "
        "cell is a number in percent that a paper prints and a table of ours shows; what papers "
        "print of curves is in our figures.",
        HOW,
        "## What was run",
        _list(run),
    ]
    if names := ", ".join(unpacked):
        parts.append(
            f"The packs of {names} are of a version that packed no runs, so pages of one paper "
            "stay apart: `make gather` has nothing to take from them."
        )
    parts += ["## The wall", READ.strip() + costs]
    for paper, of_paper in cells.groupby("paper_title", sort=False):
        done = int((of_paper["seeds"] > 0).sum())
        parts.append(f"### {markdown(paper)}: {done} of {len(of_paper)}")
        for _, table in of_paper.groupby("table", sort=False):
            parts.append(f"**{markdown(table['table_title'].iloc[0])}**\n\n{grid(table)}")
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _list(run: pd.DataFrame) -> str:
    """A row for each cell that was run."""
    heads = ["Paper", "Cell", "Method", "Published", "Ours", "Difference", "Seeds", "Core-hours"]
    rows = [
        [
            f"[{markdown(row['paper_title'])}]({row['page']})",
            markdown(row["head"]),
            markdown(row["title"]),
            percent(row["published"]),
            f"**{percent(row['reproduced'])}**",
            points(row["difference"]),
            int(row["seeds"]),
            _hours(row["hours"]),
            markdown(row["machine"] or ABSENT),
        ]
        for row in run.to_dict("records")
    ]
    align = ["left"] * 3 + ["right"] * 5 + ["left"]
    return tabulate(rows, [*heads, "Machine"], "pipe", disable_numparse=True, colalign=align)


def grid(table: pd.DataFrame) -> str:
    """A published table: its methods by its columns."""
    shown = table.assign(text=[_cell(row) for row in table.to_dict("records")])
    grid = shown.pivot_table("text", "title", "head", aggfunc="; ".join, sort=False).fillna(ABSENT)
    rows = [[markdown(title), *texts] for title, texts in zip(grid.index, grid.values, strict=True)]
    return tabulate(rows, ["", *map(markdown, grid.columns)], "pipe", disable_numparse=True)


def _cell(row: dict) -> str:
    if row["seeds"]:
        ours, off = percent(row["reproduced"]), points(row["difference"])
        return f"{percent(row['published'])} **{ours}** {off}"
    cost = "" if pd.isna(row["hours"]) else f" · {_hours(row['hours'])} h"
    return percent(row["published"]) + cost


def _hours(hours: float) -> str:
    """Core-hours with two digits."""
    if pd.isna(hours):
        return ABSENT
    return f"{hours:.1f}" if hours < 10 else f"{float(f'{hours:.2g}'):,.0f}"


def draw(run: pd.DataFrame, *files: Path) -> None:
    """Published against reproduced numbers: a point for each cell, a colour for each paper.

    Args:
      run: cells that were run, with the column "paper", too.
    """
    with style.styled():
        figure = Figure(figsize=(canvas.WIDTH * 0.6, canvas.WIDTH * 0.6), layout="constrained")
        axes = figure.subplots()
        numbers = 100 * run[["published", "reproduced"]]
        low = 10 * (numbers.min().min() // 10) if len(run) else 0
        ends = [low, 100]
        axes.fill_between(
            ends, *([x + 100 * off for x in ends] for off in (-NEAR, NEAR)), color="#EEEEEE", lw=0
        )
        axes.plot(ends, ends, color=style.GREY, linewidth=0.8)
        handles = []
        for (name, paper), mine in run.groupby(["paper", "paper_title"]):
            color = paper_color(name)
            axes.scatter(100 * mine["published"], 100 * mine["reproduced"], 18, color, zorder=3)
            near = int((mine["difference"].abs() <= NEAR).sum())
            label = f"{paper}: {near} of {len(mine)} within two points"
            handles.append(Line2D([], [], color=color, marker="o", linestyle="", label=label))
        axes.set(xlabel="Published (%)", ylabel="Reproduced (%)", xlim=ends, ylim=ends)
        axes.set_aspect("equal")
        axes.legend(handles=handles, loc="upper left", borderpad=0.8)
    saving.save(figure, *files)
