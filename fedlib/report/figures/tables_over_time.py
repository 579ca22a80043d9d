"""How a table of probabilities by expert changes over the rounds: a row of panels per run.

Such as q(expert | label) of FedMix, or how much the gates of a plain mixture trust each expert on
examples of each label.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, figure 14; specification
section 7.4.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.figures import heat, layout, style
from fedlib.report.metrics import TABLE, TRAFFIC
from fedlib.report.of_clients import seed_of


@style.styled()
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    rounds: list[int] | None = None,
    rows: str = "Label",
    values: str = "q(expert | label)",
    seed: int | None = None,
) -> Figure:
    """The figure, of one seed: the numbers of experts mean nothing from one seed to the next.

    Args:
      rounds: which of those at which the runs recorded their tables; all of them if not given.
      rows, values: what the rows and the values of the tables are.
      seed: the exhibit's first if not given.

    Raises:
      ConfigError: if the exhibit does not have the seed.
      DataError: if a run recorded no table, or none at one of the rounds.
    """
    seed = seed_of(exhibit, seed)
    shown = exhibits.pick(exhibits.select(exhibit, metrics), at="round", **TRAFFIC._asdict())
    shown = exhibits.pick(shown[shown["metric"].str.startswith(f"{TABLE}_")], seed=seed)
    found = []
    for run in exhibit["runs"]:
        mine = exhibits.pick(shown, federation=run["federation"], label=run["label"])
        found.append((run, _tables(mine, f"{run['federation']}/{run['label']}", rounds)))
    columns = max(len(tables) for _, tables in found)
    titles = []
    for _, tables in found:
        titles += [f"Round {round_}" for round_ in tables] + [None] * (columns - len(tables))
    figure, grid = layout.panels(titles, "Expert", columns=columns)
    most = 1.0 if max(table.max() for _, some in found for table in some.values()) > 0.5 else 0.5
    free = iter(grid)
    for run, tables in found:
        for number, (table, axes) in enumerate(zip(tables.values(), free, strict=False)):
            image = heat.draw(axes, table, heat.experts(table.shape[1]), most=most)
            axes.set_ylabel("" if number else f"{heat.of_run(exhibit, run)}{rows}")
    heat.scale(figure, image, grid, values)
    several = len(exhibit["seeds"]) > 1
    note = f"Seed {seed} only: experts of different seeds do not correspond."
    layout.finish(figure, exhibit, [], note if several else "")
    return figure


def _tables(frame: pd.DataFrame, run: str, rounds: list[int] | None) -> dict[int, np.ndarray]:
    """The recorded tables of a run, by round -> {round: [rows, E]}"""
    recorded = sorted(set(frame["round"]))
    missing = [round_ for round_ in rounds or [] if round_ not in recorded]
    if not recorded or missing:
        there = ", ".join(map(str, recorded)) or "none"
        at = f"at round {missing[0]}" if missing else "at any round"
        raise DataError(f"{run} recorded no table {at}; there are {there}")
    return {
        int(round_): _table(exhibits.pick(frame, round=round_)) for round_ in rounds or recorded
    }


def _table(cells: pd.DataFrame) -> np.ndarray:
    """The cells "table_{row}_{expert}" of one round -> [rows, E]"""
    places = cells["metric"].str.removeprefix(f"{TABLE}_").str.split("_", expand=True).astype(int)
    table = np.full(tuple(places.max() + 1), np.nan)
    table[tuple(places.to_numpy().T)] = cells["value"]
    return table
