"""What experts take from clients, and clients from experts: a matrix for each of some rounds.

Wʳ above, of which every column sums to 1 over the clients of the round, and below it Wᶜ, of which
every row sums to 1 over the experts.

Source: J. Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025, Equations 5 and 12; the paper shows no such figure.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.figures import heat, layout, style
from fedlib.report.metrics import TRAFFIC
from fedlib.report.of_clients import seed_of

DARK = 0.55  # from which on numbers in cells are white
KINDS = {"client_weights": "$W^r$", "sync_weights": "$W^c$"}
MEANING = (
    "Of Wʳ columns sum to 1: what an expert takes from each client of the round. Of Wᶜ rows do: "
    "what a client takes from each expert; 0 is the main expert."
)


class _Weights(NamedTuple):
    """Weights [C, E] of a round's clients [C], in ascending order."""

    clients: list[int]
    values: np.ndarray


@style.styled()
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    rounds: dict[str, list[int]] | None = None,
    seed: int | None = None,
) -> Figure:
    """The figure, two rows of panels per run, of one seed: others have other cohorts.

    Args:
      rounds: which of those at which the runs recorded their weights, by federation; all of them
        if not given.
      seed: the exhibit's first if not given.

    Raises:
      ConfigError: if the exhibit does not have the seed.
      DataError: if a run recorded no weights, or none in one of the rounds.
    """
    seed = seed_of(exhibit, seed)
    shown = exhibits.pick(exhibits.select(exhibit, metrics), at="round", **TRAFFIC._asdict())
    shown = exhibits.pick(shown, seed=seed)
    rows = [
        (run, kind, _recorded(shown, run, kind, (rounds or {}).get(run["federation"])))
        for run in exhibit["runs"]
        for kind in KINDS
    ]
    columns = max(len(found) for _, _, found in rows)
    titles = []
    for _, kind, found in rows:
        titles += [f"{KINDS[kind]}, round {round_}" for round_ in found]
        titles += [None] * (columns - len(found))
    figure, grid = layout.panels(titles, "Expert", columns=columns, height=1.6)
    free = iter(grid)
    for run, kind, found in rows:
        main = kind == "sync_weights" and _has_main(run)
        for number, (weights, axes) in enumerate(zip(found.values(), free, strict=False)):
            image = _draw(axes, weights, main)
            axes.set_ylabel("" if number else f"{heat.of_run(exhibit, run)}Client")
    heat.scale(figure, image, grid, "Weight")
    several = len(exhibit["seeds"]) > 1
    only = f"Seed {seed} only: other seeds have other cohorts." if several else ""
    layout.finish(figure, exhibit, [], only, MEANING)
    return figure


def _recorded(
    frame: pd.DataFrame, run: dict, kind: str, rounds: list[int] | None
) -> dict[int, _Weights]:
    """The weights of a run, by round."""
    mine = exhibits.pick(frame, federation=run["federation"], label=run["label"])
    mine = mine[mine["metric"].str.startswith(f"{kind}_")]
    recorded = sorted(set(mine["round"].astype(int)))
    missing = [round_ for round_ in rounds or [] if round_ not in recorded]
    if not recorded or missing:
        at = f"in round {missing[0]}" if missing else "in any round"
        there = ", ".join(map(str, recorded)) or "none"
        raise DataError(
            f"{run['federation']}/{run['label']} recorded no {kind} {at}; there are {there}"
        )
    return {number: _of_round(exhibits.pick(mine, round=number)) for number in rounds or recorded}


def _of_round(cells: pd.DataFrame) -> _Weights:
    """The cells "client_weights_{client}_{expert}" of one round."""
    places = cells["metric"].str.extract(r"_(\d+)_(\d+)$").astype(int)
    table = pd.DataFrame(
        {"client": places[0], "expert": places[1], "value": cells["value"].to_numpy()}
    ).pivot(index="client", columns="expert", values="value")
    return _Weights(table.index.tolist(), table.to_numpy())


def _has_main(run: dict) -> bool:
    return run["params"].get("num_main", 1) > 0


def _draw(axes: Axes, weights: _Weights, main: bool) -> AxesImage:
    names = heat.experts(weights.values.shape[1] - main) + (["0"] if main else [])
    image = heat.draw(axes, weights.values, names)
    axes.set_yticks(range(len(weights.clients)), list(map(str, weights.clients)))
    for (row, column), value in np.ndenumerate(weights.values):
        color = "white" if value > DARK else "#262626"
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=6, color=color)
    return image
