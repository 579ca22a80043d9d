"""How much a gate on two experts trusts the client's own: a histogram, and means by class.

Two panels per run: how the weights of the local expert are spread over all test examples of the
clients, and their mean on each client's test examples of each class.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.errors import DataError
from fedlib.report import of_clients
from fedlib.report.figures import heat, layout, style

NOTHING = "#E6E6E6"  # a class that the client has no test examples of


@style.styled()
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    bins: str = "local_weight_bins",
    means: str = "local_weights",
    seed: int | None = None,
) -> Figure:
    """The figure, of one seed.

    Args:
      bins: columns of the clients ("..._0", ...) with the number of test examples whose weight is
        in each of so many equal parts of [0, 1].
      means: columns with the mean weight on test examples of each class, NaN where there are none.
      seed: whose; the first if not given.

    Raises:
      ConfigError: if the exhibit does not have the seed.
      DataError: if the clients of a run have no such columns.
    """
    chosen = of_clients.seed_of(exhibit, seed)
    runs = exhibit["runs"]
    where = {federation["name"]: federation["title"] for federation in exhibit["federations"]}
    titles = [f"{run['title']}, {where[run['federation']]}" for run in runs for _ in range(2)]
    figure, grid = layout.panels(titles, columns=2)
    for run, histogram, by_class in zip(runs, grid[::2], grid[1::2], strict=True):
        mine = of_clients.clients_of(exhibit, clients, run, chosen)
        look = style.method_look(run["method"])
        draw_histogram(histogram, of_clients.matrix(mine, bins), look.color)
        image = draw_means(by_class, by_class_of(mine, means))
    heat.scale(figure, image, grid[1::2], "mean weight of the local expert")
    layout.finish(
        figure,
        exhibit,
        [],
        f"Seed {chosen} only." if len(exhibit["seeds"]) > 1 else "",
        "After the last round, test examples of the clients that train. The weights of the local "
        "and the global expert sum to 1. Lines: clients; bars: all of them. Grey: the client has "
        "no test examples of the class.",
    )
    return figure


def by_class_of(clients: pd.DataFrame, name: str) -> np.ndarray:
    """Mean weights on test examples of each class, NaN where a client has none -> [C, L]

    Raises:
      DataError: if no client has any.
    """
    columns = [c for c in clients if c.startswith(f"{name}_") and c[len(name) + 1 :].isdigit()]
    values = clients[sorted(columns, key=lambda c: int(c[len(name) + 1 :]))]
    if not values.notna().any(axis=None):
        raise DataError(f"the run has no {name}_0, {name}_1, ...; {of_clients.ADVICE}")
    return values.to_numpy()


def draw_histogram(axes: Axes, counts: np.ndarray, color: str) -> None:
    """Shares of all examples as bars, and of each client's as a line [C, bins]."""
    edges = np.linspace(0, 1, counts.shape[1] + 1)
    axes.stairs(counts.sum(0) / counts.sum(), edges, fill=True, color=(color, 0.35))
    for own in counts[counts.sum(1) > 0]:
        axes.stairs(own / own.sum(), edges, color=color, linewidth=0.6, alpha=0.7)
    axes.set(xlim=(0, 1), xlabel="Weight of the local expert", ylabel="Test examples (%)")
    axes.set_ylim(bottom=0)
    layout.percent_axis(axes)


def draw_means(axes: Axes, values: np.ndarray):
    """The matrix of clients by classes [C, L]."""
    axes.set_facecolor(NOTHING)
    names = [str(label) if values.shape[1] <= 10 or not label % 10 else ""
             for label in range(values.shape[1])]  # fmt: skip
    axes.set_ylabel("Client")
    return heat.draw(axes, np.ma.masked_invalid(values), names, "Class")
