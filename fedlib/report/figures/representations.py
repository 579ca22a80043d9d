"""t-SNE of experts' representations of the same examples, one panel for each expert.

All vectors of a run are embedded together, and a panel shows its kind's part of that map. Distances
between far points mean little, as always with t-SNE.

Source: L. van der Maaten and G. Hinton, "Visualizing Data using t-SNE", JMLR 2008; scikit-learn.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.errors import ConfigError
from fedlib.report import embeddings, exhibits
from fedlib.report.figures import canvas, style
from fedlib.report.inputs import Inputs
from fedlib.spec import Run

PERPLEXITY = 30.0  # the software's default; at most a third of the points
SEED = 0  # of the embedding
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "<", ">", "*")
MOST = len(style.PALETTE)  # clients or classes that a reader can distinguish; more share looks


def draw(given: Inputs) -> Figure:
    """The figure: a row per run, a panel per kind; colours are classes, markers are clients.

    Raises:
      ConfigError: if a run recorded another number of kinds.
      DataError: if a run recorded no representations.
    """
    exhibit, kinds = given.exhibit, given.kind.kinds
    shown = exhibits.pick(given.rows, at="last", seed=exhibit.seeds[0])
    several = len(exhibit.runs) > 1
    titles = [
        f"{run}\n{kind}" if several else kind for run in canvas.by_run(exhibit) for kind in kinds
    ]
    figure, grid = canvas.panels(titles, columns=len(kinds))
    every = [_points(shown, run, len(kinds)) for run in exhibit.runs]
    both = zip(*((points.label, points.client) for points in every), strict=True)
    seen = [np.unique(np.concatenate(numbers)).tolist() for numbers in both]
    for row, points in enumerate(every):
        _draw_row(grid[row * len(kinds) : (row + 1) * len(kinds)], points, *seen)
    return canvas.finish(
        figure,
        exhibit,
        _handles(*seen),
        canvas.first_seed_note(exhibit),
        f"t-SNE of the {embeddings.COMPONENTS} leading principal components of all vectors of "
        "a run together, test examples of some clients after the last round. A panel shows the "
        "part of the map where its points are; distances between far points mean little.",
    )


def _points(shown: pd.DataFrame, run: Run, kinds: int) -> embeddings.Points:
    """The vectors of a run; ConfigError unless they are of `kinds` kinds."""
    points = embeddings.of_metrics(exhibits.of_run(shown, run))
    if points.vectors.shape[1] != kinds:
        raise ConfigError(
            f"{exhibits.name(run)} recorded {points.vectors.shape[1]} kinds of "
            f"vectors, got names for {kinds}"
        )
    return points


def _draw_row(
    panels: Sequence[Axes], points: embeddings.Points, classes: list[int], clients: list[int]
) -> None:
    """Draw one run, a panel per kind; `classes` and `clients` are all that the figure shows."""
    places = embed(points.vectors)
    for number, axes in enumerate(panels):
        for client, label in sorted(set(zip(points.client, points.label, strict=True))):
            own = (points.client == client) & (points.label == label)
            color, marker = classes.index(label) % MOST, clients.index(client) % MOST
            look = {"c": style.PALETTE[color], "marker": MARKERS[marker]}
            axes.scatter(*places[own, number].T, s=22, edgecolors="white", linewidths=0.3, **look)
        axes.set(xticks=[], yticks=[])


def embed(vectors: np.ndarray) -> np.ndarray:
    """Positions in the plane of all vectors together, [P, K, components] -> [P, K, 2]"""
    from sklearn.manifold import TSNE

    flat = vectors.reshape(-1, vectors.shape[-1])
    perplexity = min(PERPLEXITY, max(1.0, len(flat) / 3))
    tsne = TSNE(perplexity=perplexity, init="pca", learning_rate="auto", random_state=SEED)
    return tsne.fit_transform(flat.astype(np.float32)).reshape(*vectors.shape[:2], 2)


def _handles(classes: list[int], clients: list[int]) -> list[Line2D]:
    """Legend entries: classes by colour, then clients by marker; those that share one together."""
    dot = {"linestyle": "None", "markersize": 5}
    looks = [{"marker": "o", "color": color} for color in style.PALETTE]
    others = [{"marker": marker, "c": style.GREY, "mfc": "w"} for marker in MARKERS]
    return [
        Line2D([], [], label=f"{what} {', '.join(map(str, numbers[place::MOST]))}", **look, **dot)
        for what, numbers, every in (("class", classes, looks), ("client", clients, others))
        for place, look in enumerate(every[: len(numbers)])
    ]
