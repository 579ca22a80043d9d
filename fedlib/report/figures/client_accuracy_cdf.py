"""The spread of accuracy over clients: the fraction of clients at or below each accuracy."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.report import comparisons, exhibits
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics import PRIMARY

AXES = ("Test accuracy of a client (%)", "Fraction of clients at or below")


def draw(given: Inputs) -> Figure:
    """The figure, after the last round; the clients of all seeds are pooled."""
    exhibit, kind = given.exhibit, given.kind
    if kind.protocols is not None:
        kinds = comparisons.variants(exhibit, kind.variants)
        return _draw_protocols(given, comparisons.declared(kind.formed("protocols")), kinds)
    default = {"at": "last", "protocol": PRIMARY.protocol, "split": PRIMARY.split}
    shown = exhibits.pick(given.client_rows, **default)
    shown = shown[shown["count"] > 0]
    scores = shown[shown["group"] == PRIMARY.group].groupby("label")["accuracy"].mean()
    looks = style.looks(exhibit, scores=scores)
    figure, grid = canvas.by_federation(exhibit, *AXES)
    for axes, federation in grid:
        for run in exhibits.runs_of(exhibit, federation["name"]):
            mine = exhibits.of_run(shown, run)
            look = looks[run["label"]]
            seen = exhibits.pick(mine, group="seen")["accuracy"]
            first, every = style.markers(exhibit["runs"], run["label"], len(seen), count=5)
            # The first point of the steps is at zero, on the edge of the panel.
            solid = {"linestyle": "-", "markevery": (first + 1, every), "label": run["title"]}
            _draw_steps(axes, seen, look.curve() | solid)
            if kind.unseen and look != style.OTHERS:
                others = exhibits.pick(mine, group="unseen")["accuracy"]
                thin = {"linestyle": style.DASHED, "linewidth": 1.0, "marker": ""}
                thin["label"] = f"{run['title']}, unseen"
                _draw_steps(axes, others, look.curve() | thin)
        _scale(axes)
    _finish(
        figure, exhibit, _handles(exhibit, looks, kind.unseen), style.others_note(exhibit, looks)
    )
    return figure


def _draw_protocols(
    given: Inputs, shown: list[comparisons.Protocol], kinds: comparisons.Variants
) -> Figure:
    """The figure of several protocols, of seen clients only."""
    where = {"at": "last", "split": PRIMARY.split, "group": PRIMARY.group}
    exhibit, rows = given.exhibit, exhibits.pick(given.client_rows, **where)
    rows = rows[rows["count"] > 0]
    figure, grid = canvas.by_federation(exhibit, *AXES)
    for axes, federation in grid:
        for run in exhibits.runs_of(exhibit, federation["name"]):
            mine = exhibits.of_run(rows, run)
            number = kinds.of[federation["name"], run["label"]]
            for protocol in shown:
                look = style.variant_look(style.protocol_look(protocol.key), number)
                values = exhibits.pick(mine, protocol=protocol.name)["accuracy"]
                _draw_steps(axes, values, look.curve() | {"marker": ""})
        _scale(axes)
    handles = style.protocol_handles(shown)
    if len(kinds.titles) > 1:
        handles += style.variant_handles(kinds.titles)
    for handle in handles[: len(shown)]:
        handle.set_linestyle(style.SOLID)
    for handle in handles:
        handle.set_marker("")
    _finish(figure, exhibit, handles, *comparisons.selection_note(exhibit))
    return figure


def _scale(axes: Axes) -> None:
    axes.set_ylim(0, 1.02)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}")


def _finish(figure: Figure, exhibit: dict, handles: list[Line2D], *sentences: str) -> None:
    seeds = "Clients of all seeds together." if len(exhibit["seeds"]) > 1 else ""
    canvas.finish(figure, exhibit, handles, "After the last round.", seeds, *sentences)


def _draw_steps(axes: Axes, values: pd.Series, curve: dict) -> None:
    if values.empty:
        return
    x = np.sort(values.to_numpy())
    y = np.arange(1, len(x) + 1) / len(x)
    axes.plot(np.r_[x[0], x], np.r_[0, y], drawstyle="steps-post", **curve)


def _handles(exhibit: dict, looks: dict[str, style.Look], unseen: bool) -> list[Line2D]:
    handles = style.method_handles(exhibit, looks)
    for handle in handles:
        handle.set_linestyle("-")
    if unseen:
        grey = {"color": style.GREY, "linewidth": 1.2}
        handles.append(Line2D([], [], linestyle="-", label="seen clients", **grey))
        handles.append(Line2D([], [], linestyle=style.DASHED, label="unseen clients", **grey))
    return handles
