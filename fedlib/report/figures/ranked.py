"""Bars of experts ordered by use, which makes seeds comparable, one panel per federation.

Across seeds an expert's number means nothing, but its rank does. Variants of a run, such as with
and without exploration, stand side by side. `cluster_usage` has how many clients choose each expert
at the end, the most popular first; `gate_weights` the mean gate weight of each expert over clients:
of the shared experts by weight, then of the clients' own.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedlib.errors import DataError
from fedlib.report import diagnostics, exhibits
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.spec import ExhibitSpec, Run

FILLS = (1.0, 0.35, 0.15)  # opacity of the variants
EVEN = {"color": style.GREY, "linestyle": style.DOTTED, "linewidth": 1.0}
CHOICE = "Choice of the clients that train after the last round; every seed has its own order."
MEAN_WEIGHT = (
    "Mean over the test examples of each of the clients that train, then over clients; an expert "
    "that no client uses counts 0. Every seed has its own order."
)


def draw(given: Inputs) -> Figure:
    """The figure, by its kind.

    Raises:
      ConfigError: unless every run states its number of experts.
      DataError: if a client of a run has not chosen one of its experts, or none has weights.
    """
    kinds = {one.__name__: one for one in (cluster_usage, gate_weights)}
    figure, handles, what = kinds[given.kind.kind](given)
    whisker = canvas.spread_text(given.exhibit, "whisker")
    return canvas.finish(figure, given.exhibit, handles, what, whisker)


def cluster_usage(given: Inputs) -> tuple[Figure, list, str]:
    """The panels, legend and meaning of clients by expert; lines show even use."""
    color = style.protocol_look("ifca").color
    figure, grid = canvas.by_federation(given.exhibit, "Cluster, most popular first", "Clients")
    for axes, federation in grid:
        counts = _by_label(given, federation.name, _counts)
        _draw_bars(axes, counts, color)
        for even in {found[0].sum() / found.shape[1] for found in counts.values()}:
            axes.axhline(even, **EVEN)
        axes.locator_params("y", integer=True)
    even = Line2D([], [], label="even use", **EVEN)
    return figure, [*_handles(given.exhibit, color), even], CHOICE


def gate_weights(given: Inputs) -> tuple[Figure, list, str]:
    """The panels, legend and meaning of mean weights."""
    color = style.protocol_look("moe").color
    names = "Expert, shared ones by weight", "Mean weight of the gate"
    figure, grid = canvas.by_federation(given.exhibit, *names)
    for axes, federation in grid:
        values = _by_label(given, federation.name, _weights)
        most = max(found.shape[1] for found in values.values()) - 1
        _draw_bars(axes, {place: pad(found, most) for place, found in values.items()}, color)
        axes.axvline(most + 0.5, color=style.GREY, linewidth=0.8)
        axes.set_xticks(range(1, most + 2), [*map(str, range(1, most + 1)), "local"])
    return figure, _handles(given.exhibit, color), MEAN_WEIGHT


def _by_label(
    given: Inputs, federation: str, measure: Callable[[pd.DataFrame, Run], np.ndarray]
) -> dict[int, np.ndarray]:
    """`measure(clients, run)` of the seen clients [seeds, E], by place of the run's label."""
    shown = exhibits.pick(given.client_rows, at="last", federation=federation, **PRIMARY._asdict())
    runs = {run.label: run for run in exhibits.runs_of(given.exhibit, federation)}
    return {
        place: measure(exhibits.pick(shown, label=label), runs[label])
        for place, label in enumerate(exhibits.titles(given.exhibit))
        if label in runs
    }


def _counts(clients: pd.DataFrame, run: Run) -> np.ndarray:
    """Clients per expert in descending order, of each seed -> [seeds, E]"""
    number = int(exhibits.setting("num_experts", run))
    chosen = diagnostics.column(clients, "choice")
    if chosen.min() < 0 or chosen.max() >= number:
        name = exhibits.name(run)
        raise DataError(f"choice of {name} must be in [0, {number - 1}], one of its experts")
    found = [
        np.sort(np.bincount(of_seed, minlength=number))[::-1]
        for _, of_seed in pd.Series(chosen).groupby(clients["seed"].to_numpy())
    ]
    return np.stack(found).astype(float)


def _weights(clients: pd.DataFrame, run: Run) -> np.ndarray:
    """Mean weights, of shared experts in descending order, the local one last -> [seeds, E + 1]"""
    number = int(exhibits.setting("num_experts", run))
    clients = clients[clients["count"] > 0]  # weights are means over test examples
    columns = [f"gate_weights_{expert}" for expert in range(number + 1)]
    # Clients without a mixture have no weights.
    having = clients.reindex(columns=["seed", *columns]).dropna(how="all", subset=columns)
    missing = {*columns} - {*clients} or {*clients["seed"]} - {*having["seed"]}
    if missing or having.empty:
        raise DataError(
            f"the clients of {exhibits.name(run)} have no {columns[0]} to "
            f"{columns[-1]}; run its evaluation and the metrics stage again"
        )
    means = having.fillna(0.0).groupby("seed").mean().to_numpy()
    return np.concatenate([-np.sort(-means[:, :-1], axis=1), means[:, -1:]], axis=1)


def pad(values: np.ndarray, experts: int) -> np.ndarray:
    """`values` with columns of 0 before the last, so that all variants have `experts` experts."""
    missing = experts + 1 - values.shape[1]
    return np.insert(values, [values.shape[1] - 1] * missing, 0.0, axis=1)


def _draw_bars(axes: Axes, values: dict[int, np.ndarray], color: str) -> None:
    """Draw groups of bars at 1, 2, ...: means over seeds, whiskers from smallest to largest.

    Args:
      values: [seeds, E] by the place of a variant; fewer columns for one with fewer experts.
      color: of all bars.
    """
    width = 0.8 / len(values)
    for number, (place, found) in enumerate(values.items()):
        offset = (number - (len(values) - 1) / 2) * width
        x, mean = np.arange(1, found.shape[1] + 1) + offset, found.mean(axis=0)
        axes.bar(x, mean, width, **_bar(place, color))
        if len(found) > 1:
            spread = [mean - found.min(axis=0), found.max(axis=0) - mean]
            axes.errorbar(x, mean, spread, linestyle="None", **style.WHISKER)
    most = max(found.shape[1] for found in values.values())
    axes.set(xlim=(0.4, most + 0.6), ylim=(0, None), xticks=range(1, most + 1))
    axes.grid(False, axis="x")


def _bar(number: int, color: str) -> dict:
    """Keyword arguments for a bar or patch of variant `number`."""
    return {"facecolor": (color, FILLS[number % len(FILLS)]), "edgecolor": color, "linewidth": 0.8}


def _handles(exhibit: ExhibitSpec, color: str) -> list[Patch]:
    """Legend entries of the labels."""
    titles = exhibits.titles(exhibit).values()
    return [Patch(label=title, **_bar(number, color)) for number, title in enumerate(titles)]
