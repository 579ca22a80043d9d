"""Dots of what runs send and compute to reach a target accuracy, two panels per federation.

A run that misses the target has no dot, because the cost of the whole run would be too low.

Source: L. Yi et al., pFedMoE, 2024 (arXiv:2402.01350); pFedMoE's README, section 6, whose costs are
  rounds to the target times numbers exchanged, or operations of training, in a round.
Deviation: costs are summed over the actual rounds, for all clients together.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from fedlib.errors import ConfigError, DataError
from fedlib.report import comparisons, exhibits
from fedlib.report.comparisons import MEAN
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.report.metrics.tidy import FLOPS, TRAFFIC
from fedlib.report.tables.cost import quantity
from fedlib.spec import ExhibitSpec, Run

PANELS = {  # cost: name of its axis
    "bytes": "Sent by all clients together (bytes)",
    "flops": "Training of all clients together (FLOPs)",
}
ROW_HEIGHT = 0.21  # inches of a dot and its name
AROUND = 1.1  # inches of a panel's title and axis
ROOM = 4.0  # factor of space left and right of the dots on a logarithmic axis; right for numbers


def draw(given: Inputs) -> Figure:
    """The figure: means over seeds that reach the target, a whisker from least to most.

    Raises:
      ConfigError: if a federation has no target in (0, 1].
      DataError: if a run lacks one of the numbers.
    """
    exhibit, targets = given.exhibit, given.kind.targets
    _check(exhibit, targets)
    where = [(federation, field) for federation in exhibit.federations for field in PANELS]
    most = max(len(exhibits.runs_of(exhibit, f.name)) for f in exhibit.federations)
    height = AROUND + ROW_HEIGHT * most
    titles = [f"{f.title}: {100 * targets[f.name]:g} %" for f, _ in where]
    figure, grid = canvas.panels(titles, columns=len(PANELS), height=height)
    looks = style.looks(exhibit)
    for axes, (federation, field) in zip(grid, where, strict=True):
        runs = exhibits.runs_of(exhibit, federation.name)
        spent = [_spent(given, run, field, targets[federation.name]) for run in runs]
        _draw_dots(axes, spent, runs, looks, len(exhibit.seeds))
        axes.set_yticks(range(len(runs)), [run.title for run in runs])
        axes.set_xlabel(PANELS[field])
    return canvas.finish(
        figure,
        exhibit,
        [],
        f"Until the first evaluated round at which the {comparisons.METRICS[MEAN]}, "
        "reaches the target on test examples; means over the seeds that reach it. Logarithmic "
        "axes; k, M, G, T: thousands, millions, ...",
        canvas.spread_text(exhibit, "whisker"),
    )


def _check(exhibit: ExhibitSpec, targets: dict[str, float]) -> None:
    for federation in exhibit.federations:
        if not 0 < targets.get(federation.name, 0) <= 1:
            raise ConfigError(
                f"targets must have a number in (0, 1] for {federation.name}, got {targets}"
            )


def _spent(given: Inputs, run: Run, cost: str, target: float) -> pd.Series:
    """What a run had sent ("bytes") or computed ("flops") when it reached the target, by seed."""
    mine = exhibits.of_run(given.rows, run)
    curve = exhibits.pick(mine, at="round", metric=MEAN, **PRIMARY._asdict())
    first = curve[curve["value"].round(8) >= round(target, 8)].groupby("seed")["round"].min()
    metric = "bytes" if cost == "bytes" else "examples"
    spent = exhibits.pick(mine, at="round", metric=metric, **TRAFFIC._asdict())
    reached = spent.set_index(["seed", "round"])["value"].reindex([*first.items()]).droplevel(1)
    if cost == "flops":
        of_example = exhibits.pick(mine, at="last", metric=FLOPS).set_index("seed")["value"]
        reached = reached * of_example.reindex(reached.index)
    if reached.isna().any():
        raise DataError(
            f"{exhibits.name(run)} has no {cost} until the target; run its evaluation and the "
            "metrics stage again"
        )
    return reached


def _draw_dots(
    axes: Axes, spent: list[pd.Series], runs: list[Run], looks: dict, seeds: int
) -> None:
    """A dot per run, from the top, with its number, and that of the seeds in it if some miss."""
    means = [values.mean() if len(values) else np.nan for values in spent]
    shown = [mean for mean in means if mean > 0]  # not NaN
    left, right = (min(shown) / ROOM, max(shown) * ROOM) if shown else (1e6, 1e9)
    right *= (right / left) ** 0.1
    # A whisker that leaves the panel would take its number with it.
    right = max([right, *(x.max() * ROOM for x in spent if x.max() > right)])
    left = min([left, *(x.min() for x in spent if x.min() > 0)])
    axes.set(xscale="log", xlim=(left, right), ylim=(len(spent) - 0.4, -0.6))
    for place, (values, mean, run) in enumerate(zip(spent, means, runs, strict=True)):
        end = values.max() if mean > 0 else left
        if mean > 0:
            axes.plot(mean, place, "o", color=looks[run.label].color, label=run.title)
            if len(values) > 1:
                spread = [[mean - values.min()], [values.max() - mean]]
                axes.errorbar(mean, place, xerr=spread, linestyle="None", **style.WHISKER)
        text = "not reached" if np.isnan(mean) else quantity(mean)
        text += f" ({len(values)} of {seeds} seeds)" if 0 < len(values) < seeds else ""
        axes.annotate(text, (end, place), (5, 0), textcoords="offset points", va="center")
    axes.xaxis.set_major_locator(LogLocator(numticks=6))
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
