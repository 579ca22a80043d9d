"""The experts that each client relies on, beside its true cluster: a grey matrix per run.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, figures 7 and 8;
FedMix's README, section 7.2.
"""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from fedlib.report import diagnostics, exhibits, recovery
from fedlib.report.figures import canvas, heat
from fedlib.report.inputs import Inputs
from fedlib.spec import ExhibitSpec, Run

LINE = {"color": "#D55E00", "linewidth": 0.8}
MEANING = (
    "Experts stand in the order of the clusters that rely on them; orange lines part the true "
    "clusters. Purity: share of clients whose cluster is the commonest of their expert's."
)

CHOSEN = "Of each run the seed of highest purity, which flatters it."


class _Matrix(NamedTuple):
    """Mixture weights [C, E] of one seed; clients [C] are in the order of their clusters [C]."""

    pi: np.ndarray
    cluster: np.ndarray
    seed: int
    clients: list[str]

    def purity(self) -> float:
        return recovery.purity(recovery.top_experts(self.pi), self.cluster)

    def num_used(self) -> int:
        return len(np.unique(recovery.top_experts(self.pi)))


def draw(given: Inputs) -> Figure:
    """The figure: for each federation the true clusters, then a panel per run.

    Clients are sorted by cluster. Experts are in the order of the clusters that rely on them,
    because their numbers mean nothing.

    Raises:
      DataError: if the clients of a run have no weights or no clusters.
    """
    exhibit = given.exhibit
    rows = [
        [
            (run, best([_read(given, run, seed) for seed in exhibit.seeds]))
            for run in exhibits.runs_of(exhibit, federation.name)
        ]
        for federation in exhibit.federations
    ]
    columns = 1 + max(len(row) for row in rows)
    number = max(len(matrix.pi) for row in rows for _, matrix in row)
    height = min(max(2.2, 0.9 + 0.09 * number), 6.0)
    titles = []
    for federation, row in zip(exhibit.federations, rows, strict=True):
        titles.append(f"{federation.title}\nTrue cluster" if len(rows) > 1 else "True cluster")
        titles += [_title(exhibit, run, matrix) for run, matrix in row]
        titles += [None] * (columns - 1 - len(row))
    ylabel = "Client, sorted by cluster"
    figure, grid = canvas.panels(titles, "", ylabel, columns=columns, height=height)
    free = iter(grid)
    for row in rows:
        first = row[0][1]
        _draw(next(free), np.eye(int(first.cluster.max()) + 1)[first.cluster], first, "Cluster")
        for _, matrix in row:
            image = _draw(next(free), _order_experts(matrix), matrix, "Expert")
    heat.scale(figure, image, grid, "weight of the expert")
    return canvas.finish(figure, exhibit, [], CHOSEN if len(exhibit.seeds) > 1 else "", MEANING)


def _read(given: Inputs, run: Run, seed: int) -> _Matrix:
    """Weights and clusters of the seen clients of a run, sorted by cluster.

    Raises:
      DataError: if they are not recorded.
    """
    mine = diagnostics.of_seed(given, run, seed)
    true = diagnostics.column(mine, "cluster")
    order = np.argsort(true, kind="stable")
    clients = np.array(diagnostics.names(mine))[order].tolist()
    return _Matrix(diagnostics.matrix(mine, "pi")[order], true[order], seed, clients)


def best(matrices: list[_Matrix]) -> _Matrix:
    """The matrix of highest purity; of equal ones, the first with most experts in use."""
    return max(matrices, key=lambda matrix: (matrix.purity(), matrix.num_used()))


def _order_experts(matrix: _Matrix) -> np.ndarray:
    """The weights, with experts ordered by the clients that rely on them; unused experts last."""
    masses = matrix.pi.sum(axis=0)
    position = np.arange(len(matrix.pi)) @ matrix.pi / np.maximum(masses, 1e-12)
    unused = ~np.isin(np.arange(len(masses)), recovery.top_experts(matrix.pi))
    return matrix.pi[:, np.lexsort((position, unused))]


def _draw(axes: Axes, values: np.ndarray, of: _Matrix, what: str) -> AxesImage:
    experts, clients = heat.experts(values.shape[1]), canvas.short(of.clients)
    image = heat.draw(axes, values, experts, what, rows=clients)
    for boundary in np.flatnonzero(np.diff(of.cluster)):
        axes.axhline(boundary + 0.5, **LINE)
    return image


def _title(exhibit: ExhibitSpec, run: Run, matrix: _Matrix) -> str:
    seed = f", seed {matrix.seed}" if len(exhibit.seeds) > 1 else ""
    used = matrix.num_used()
    experts = f"{used} expert{'s' * (used > 1)} used"
    return f"{run.title}{seed}\npurity {matrix.purity():.2f}, {experts}"
