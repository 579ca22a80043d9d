"""The spread of accuracy over clients: the fraction of clients at or below each accuracy."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.report import comparisons, exhibits
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.spec import Run

Steps = Callable[[Run, pd.DataFrame], Iterable[tuple[pd.DataFrame, dict]]]
AXES = ("Test accuracy of a client (%)", "Fraction of clients at or below")


def draw(given: Inputs) -> Figure:
    """The figure, after the last round; the clients of all seeds are pooled."""
    exhibit = given.exhibit
    rows = exhibits.pick(given.client_rows, at="last", split=PRIMARY.split)
    rows = rows[rows["count"] > 0]
    steps, handles, note = (_methods if given.kind.protocols is None else _protocols)(given, rows)
    figure, grid = canvas.by_federation(exhibit, *AXES)
    for axes, federation in grid:
        for run in exhibits.runs_of(exhibit, federation.name):
            for values, curve in steps(run, exhibits.of_run(rows, run)):
                _draw_steps(axes, values["accuracy"], curve)
        axes.set_ylim(0, 1.02)
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}")
    seeds = "Clients of all seeds together." if len(exhibit.seeds) > 1 else ""
    return canvas.finish(figure, exhibit, handles, "After the last round.", seeds, note)


def _methods(given: Inputs, rows: pd.DataFrame) -> tuple[Steps, list[Line2D], str]:
    """The steps of a method, by its default protocol."""
    exhibit = given.exhibit
    seen = exhibits.pick(rows, group=PRIMARY.group, protocol=PRIMARY.protocol)
    looks = style.looks(exhibit, scores=seen.groupby("label")["accuracy"].mean())

    def steps(run: Run, mine: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, dict]]:
        look = looks[run.label]
        seen = exhibits.pick(mine, protocol=PRIMARY.protocol, group=PRIMARY.group)
        first, every = style.markers(exhibit.runs, run.label, len(seen), count=5)
        # The first point of the steps is at zero, on the edge of the panel.
        solid = {"linestyle": "-", "markevery": (first + 1, every), "label": run.title}
        yield seen, look.curve() | solid

    handles = style.method_handles(exhibit, looks)
    for handle in handles:
        handle.set_linestyle("-")
    return steps, handles, style.others_note(exhibit, looks)


def _protocols(given: Inputs, rows: pd.DataFrame) -> tuple[Steps, list[Line2D], str]:
    """The steps of each protocol, of seen clients only; dashes tell variants of runs apart."""
    exhibit, kind = given.exhibit, given.kind
    shown = comparisons.complete_protocols(kind.entries("protocols"))
    kinds = comparisons.variants(exhibit, kind.variants)

    def steps(run: Run, mine: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, dict]]:
        number = kinds.of[run.federation, run.label]
        for protocol in shown:
            look = style.variant_look(style.protocol_look(protocol.key), number)
            values = exhibits.pick(mine, protocol=protocol.name, group=PRIMARY.group)
            told = f"{protocol.title}, {kinds.titles[number]}".removesuffix(", ")
            yield values, look.curve() | {"marker": "", "label": told}

    told = [x if i in kinds.of.values() else "" for i, x in enumerate(kinds.titles)]
    handles = style.protocol_handles(shown, told)
    for handle in handles:
        handle.set_marker("")
    return steps, handles, " ".join(comparisons.selection_note(exhibit))


def _draw_steps(axes: Axes, values: pd.Series, curve: dict) -> None:
    if values.empty:
        return
    x = np.sort(values.to_numpy())
    y = np.arange(1, len(x) + 1) / len(x)
    axes.plot(np.r_[x[0], x], np.r_[0, y], drawstyle="steps-post", **curve)
