"""Accuracy of the protocols of a training against one parameter, of the data or of the runs.

One line per protocol, with the same colour and marker in all figures. Variants of a run, such as
with and without exploration, have panels or dashes of their own.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.report import comparisons, exhibits, notes
from fedlib.report.figures import canvas, style
from fedlib.report.figures.sweep import EVEN, is_even, lay_out, positions
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.seeds import over_seeds
from fedlib.spec import ExhibitSpec
from fedlib.spec.figures import ProtocolSweep

PUBLISHED = {"linestyle": "None", "markersize": 5, "markeredgewidth": 1.2}
CROSSES = ("x", "+", "1", "2", "3")  # of variants, which have as many dashes


def draw(given: Inputs) -> Figure:
    """The figure; crosses mark published numbers, see `comparisons.find_published`.

    Raises:
      ConfigError: see `fedlib.report.comparisons.variants`, or if two runs are at the same place.
      DataError: see `fedlib.report.comparisons.accuracies`.
    """
    exhibit, kind = given.exhibit, given.kind
    shown = comparisons.complete_protocols(kind.entries("protocols"))
    kinds = comparisons.variants(exhibit, kind.variants)
    places = _places(exhibit, kind, kinds)
    settings = sorted(places["setting"].unique())
    even = is_even(settings)
    places["x"] = positions(places["setting"], settings, even)
    points = _points(places, comparisons.accuracies(given, shown))
    names = exhibits.parameter_title(kind.parameter, kind.symbol), "Mean client accuracy (%)"
    figure, grid = canvas.panels([*places["panel"].unique()], *names)
    crossed = False
    for axes, (title, here) in zip(grid, places.groupby("panel", sort=False), strict=True):
        for protocol in shown:
            mine = exhibits.pick(points, panel=title, protocol=protocol.name)
            _draw_lines(axes, mine, protocol, kinds.titles if kind.panels == "federation" else [])
            crossed |= _mark_published(axes, given, here, protocol)
        lay_out(axes, settings, even)
        axes.margins(x=0.06, y=0.08)
        canvas.percent_axis(axes)
    if kind.panels == "variant":  # whose panels are to be compared
        _level(grid)
    about = notes.parameter(kind.parameter, kind.symbol)
    handles = _handles(shown, kinds, kind.panels, crossed)
    return canvas.finish(figure, exhibit, handles, about, *_notes(exhibit, even, crossed))


def _places(exhibit: ExhibitSpec, kind: ProtocolSweep, kinds: comparisons.Variants) -> pd.DataFrame:
    """The place of every run -> DataFrame federation, label, setting, panel, dashes."""
    places = exhibits.place_runs(exhibit, kind.parameter, kind.of)
    order = exhibits.panels(exhibit, kind.of)
    names = zip(places["federation"], places["label"], strict=True)
    places["dashes"] = [kinds.of[name] for name in names]
    places["order"] = [order.index(panel) for panel in places["panel"]]
    places = places.sort_values(["order", "dashes"], kind="stable", ignore_index=True)
    if kind.panels == "variant":
        titles = [kinds.titles[variant] for variant in places["dashes"]]
        places["panel"] = places["panel"] + ", " + titles if len(order) > 1 else titles
        places["dashes"] = 0
    exhibits.check_apart(exhibit, places, "panel", "dashes")
    return places[["federation", "label", "setting", "panel", "dashes"]]


def _points(places: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """The accuracies over trials with their places, from left to right."""
    summary = over_seeds(values, ["federation", "label", "protocol"])
    return places.merge(summary, on=["federation", "label"]).sort_values("x", kind="stable")


def _notes(exhibit: ExhibitSpec, even: bool, crossed: bool) -> list[str]:
    """Notes below the panels."""
    return [
        "After the last round, on the clients that train.",
        canvas.spread_text(exhibit, "band"),
        EVEN if even else "",
        *comparisons.selection_note(exhibit),
        *notes.comparison(exhibit, shown=crossed),
    ]


def _draw_lines(
    axes: Axes, points: pd.DataFrame, protocol: comparisons.Protocol, variants: list[str]
) -> None:
    """Draw a protocol in a panel, each of the variants, if any, with its own dashes and name."""
    look = style.protocol_look(protocol.key)
    for number, line in points.groupby("dashes"):
        drawn = style.variant_look(look, number) if variants else look
        told = ", ".join(filter(None, [protocol.title, *variants[number : number + 1]]))
        axes.plot(line["x"], line["mean"], label=told, **drawn.curve())
        if (line["seeds"] > 1).any():
            band = {"color": look.color, "alpha": 0.15 if number == 0 else 0.08, "linewidth": 0}
            axes.fill_between(line["x"], line["low"], line["high"], **band)


def _mark_published(
    axes: Axes, given: Inputs, places: pd.DataFrame, protocol: comparisons.Protocol
) -> bool:
    """Mark the published numbers of a protocol in a panel; whether there are any."""
    federations = {federation.name: federation for federation in given.exhibit.federations}
    found = places.assign(
        value=[
            comparisons.find_published(given, federations[name], label, protocol.key, "accuracy")
            for name, label in zip(places["federation"], places["label"], strict=True)
        ]
    ).dropna(subset="value")
    for number, part in found.groupby("dashes"):
        color = style.protocol_look(protocol.key).color
        cross = PUBLISHED | {"marker": CROSSES[number % len(CROSSES)], "markeredgecolor": color}
        named = {"color": color, "label": f"{protocol.title}, published"}
        axes.plot(part["x"], part["value"], **cross, **named, zorder=4)
    return len(found) > 0


def _level(grid: list[Axes]) -> None:
    """Give all panels the same y axis."""
    limits = [axes.get_ylim() for axes in grid]
    for axes in grid:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _handles(
    shown: list[comparisons.Protocol], kinds: comparisons.Variants, panels: str, crossed: bool
) -> list[Line2D]:
    told_apart = panels == "federation" and len(kinds.titles) > 1
    handles = style.protocol_handles(shown, kinds.titles if told_apart else ())
    if crossed:
        marks = CROSSES if told_apart else CROSSES[:1]
        for mark, title in zip(marks, kinds.titles, strict=False):
            label = f"published, {title}" if told_apart else "published"
            cross = PUBLISHED | {"marker": mark, "markeredgecolor": style.GREY}
            handles.append(Line2D([], [], label=label, **cross))
    return handles
