"""A table of probabilities by expert over the rounds: a row of panels per run.

Examples are q(expert | label) of FedMix, or a plain mixture's mean gate weights of each expert for
examples of each label.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, figure 14;
FedMix's README, section 7.4.
"""

import numpy as np
from matplotlib.figure import Figure

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.figures import canvas, heat
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.tidy import TABLE
from fedlib.spec import ExhibitSpec, Run


def draw(given: Inputs) -> Figure:
    """The figure, of one seed, because the numbers of experts mean nothing across seeds.

    Raises:
      DataError: if a run recorded no table, or none at one of the rounds.
    """
    exhibit, kind = given.exhibit, given.kind
    found = [_tables(given, run) for run in exhibit.runs]
    columns = max(map(len, found))
    titles = [[f"Round {number}" for number in tables] for tables in found]
    padded = [title for row in titles for title in row + [None] * (columns - len(row))]
    figure, grid = canvas.panels(padded, "Expert", columns=columns)
    most = 1.0 if max(np.nanmax(x) for tables in found for x in tables.values()) > 0.5 else 0.5
    free = iter(grid)
    for run, tables in zip(exhibit.runs, found, strict=True):
        for place, table in enumerate(tables.values()):
            image = heat.draw(axes := next(free), table, heat.experts(table.shape[1]), most=most)
            axes.set_ylabel("" if place else f"{_axis_name(exhibit, run)}{kind.rows}")
    heat.scale(figure, image, grid, kind.values)
    seed = canvas.first_seed_note(exhibit, "experts of different seeds do not correspond")
    absent = any(np.isnan(x).any() for tables in found for x in tables.values())
    nothing = f"Grey: no examples of the {kind.rows.lower()}." if absent else ""
    return canvas.finish(figure, exhibit, [], seed, nothing)


def _tables(given: Inputs, run: Run) -> dict[int, np.ndarray]:
    """A run's tables [rows, E], of the first seed, by round: of all recorded or the shown rounds.

    Raises:
      DataError: if a shown round, or any round at all, is not recorded.
    """
    cells = given.records(run, TABLE, seed=given.exhibit.seeds[0])
    place = cells["index"].str.split("_", expand=True).astype(int)
    found = {
        int(number): _blank_empty_rows(table.pivot(index=0, columns=1, values="value").to_numpy())
        for number, table in cells.join(place).groupby("round")
    }
    shown = given.kind.rounds or [*found]
    if missing := [number for number in shown if number not in found]:
        there = ", ".join(map(str, found))
        raise DataError(
            f"{exhibits.name(run)} recorded no {TABLE} at round {missing[0]}; there are {there}"
        )
    return {number: found[number] for number in shown}


def _blank_empty_rows(table: np.ndarray) -> np.ndarray:
    """A table of weights with NaN in rows without any: weights of a row with examples sum to 1."""
    return np.where(table.any(axis=1, keepdims=True), table, np.nan)


def _axis_name(exhibit: ExhibitSpec, run: Run) -> str:
    """Lines for the name of an axis: the run and its federation, where there are several."""
    federations = {federation.name: federation for federation in exhibit.federations}
    names = [federations[run.federation].title] if len(federations) > 1 else []
    names += [run.title] if len(exhibits.titles(exhibit)) > 1 else []
    return "".join(f"{name}\n" for name in names)
