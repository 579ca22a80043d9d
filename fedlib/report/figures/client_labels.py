"""How many examples each client has, and the share of each class among them.

Two panels per federation, one below the other, show the same clients: seen clients, then unseen
ones, each sorted by their commonest class.
"""

from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedlib.errors import DataError
from fedlib.federation import CLIENTS, SPLITS
from fedlib.report.figures import canvas, stacks, style
from fedlib.report.inputs import Inputs
from fedlib.spec import ExhibitSpec

TITLES = {"train": "to train", "val": "to validate", "test": "to be tested on"}
HEIGHT = 1.25  # inches of a row of panels
NORM = PowerNorm(0.5, 0, 1)  # of shares, so that small ones are visible
MOST_NAMES = 10  # beside a panel; sorted clients have no numbers if there are more
SHARES = (0.02, 0.1, 0.5, 1.0)  # in the legend
BOUNDARY = {"color": "#262626", "linewidth": 1.2}
MEANING = (
    "Above: examples of each client. Below: the share of its labels that is of each class. Clients "
    "are sorted by their commonest class."
)


class _Shown(NamedTuple):
    """The clients of a federation, in the order in which they are drawn."""

    sizes: np.ndarray  # [C, splits] examples
    shares: np.ndarray  # [C, L] of a client's labels
    num_seen: int
    num_asked: int  # clients that were declared, or as many as there are
    server: int  # examples of owners that are not clients
    clients: list[str]  # names, or numbers from 0
    classes: list[str]  # names; none for numbers


def draw(given: Inputs) -> Figure:
    """The figure, of the first seed's partition.

    Raises:
      DataError: if the manifest of a federation is missing.
    """
    exhibit, found = given.exhibit, [*map(_read, given.manifests)]
    if len(found) != len(exhibit.federations):
        raise DataError(
            f"{exhibit.name} needs a manifest of each of its {len(exhibit.federations)} "
            f"federations, got {len(found)}"
        )
    figure = _drawn(exhibit, found)
    redrawn = any(federation.per_seed for federation in exhibit.federations)
    notes = {
        "Right of the upright line: clients that take no part in training.": any(
            shown.num_seen < len(shown.shares) for shown in found
        ),
        "Not drawn: clients left without examples to train or to be tested on.": any(
            len(shown.shares) < shown.num_asked for shown in found
        ),
        canvas.first_seed_note(exhibit, "others have partitions of their own"): redrawn,
    }
    true = [note for note, holds in notes.items() if holds]
    return canvas.finish(figure, exhibit, _handles(found), MEANING, *true)


def _drawn(exhibit: ExhibitSpec, found: list[_Shown]) -> Figure:
    """Rows of panels of sizes, each above a row of shares."""
    columns = canvas.side_by_side(len(found))
    rows = [found[first : first + columns] for first in range(0, len(found), columns)]
    names = iter(federation.title for federation in exhibit.federations)
    titles: list[str | None] = []
    for row in rows:
        gaps = [None] * (columns - len(row))
        titles += [f"{next(names)}\n{_counted(shown)}" for shown in row] + gaps
        titles += [""] * len(row) + gaps
    figure, grid = canvas.panels(titles, "Client", columns=columns, height=HEIGHT)
    free = iter(grid)
    for row in rows:
        for drawn, name in ((_draw_sizes, "Examples"), (_draw_shares, "Class")):
            for place, shown in enumerate(row):
                drawn(axes := next(free), shown)
                axes.set_ylabel("" if place else name)
    return figure


def _handles(found: list[_Shown]) -> list[Patch]:
    """Legend entries of the splits in use, and of some shares."""
    handles = [
        handle
        for split, handle in enumerate(stacks.handles([*TITLES.values()]))
        if any(shown.sizes[:, split].any() for shown in found)
    ]
    shades = zip(SHARES, colormaps[style.SHADES](NORM(SHARES)), strict=True)
    return handles + [Patch(color=shade, label=f"{x:.0%} of its labels") for x, shade in shades]


def _read(manifest: dict) -> _Shown:
    group = np.array(manifest["group"])
    is_client = np.isin(group, CLIENTS)
    counts = np.array([list(map(int, row.split())) for row in manifest["class_histogram"]])
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # Seen clients first; then by commonest class, and by its share in descending order.
    order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1), group != CLIENTS[0]))
    order = order[is_client[order]]
    sizes = np.stack([manifest["sizes"][name] for name in SPLITS], axis=1)
    asked = manifest["spec"]["partition"].get("num_clients") or 0
    names = manifest.get("client_name", range(len(group)))
    return _Shown(
        sizes[order],
        shares[order],
        num_seen=int(np.sum(group == CLIENTS[0])),
        num_asked=max(asked, len(order)),
        server=int(sizes[~is_client].sum()),
        clients=[str(names[client]) for client in order],
        classes=manifest.get("class_name", []),
    )


def _counted(shown: _Shown) -> str:
    """The number of clients, and the examples of a server."""
    made = len(shown.shares)
    of = f" of {shown.num_asked}" if made < shown.num_asked else ""
    text = f"{made:,}{of} client{'s' * (made != 1)}"
    return text + (f"; server: {shown.server:,} examples" if shown.server else "")


def _draw_sizes(axes: Axes, shown: _Shown) -> None:
    edges = np.arange(len(shown.shares) + 1) + 0.5
    stacks.draw(axes, shown.sizes, edges)
    _scale(axes, shown)
    axes.set_ylim(0, max(shown.sizes.sum(axis=1).max() * 1.05, 1))
    axes.yaxis.set_major_locator(_ticks())
    axes.set_xticks([])


def _draw_shares(axes: Axes, shown: _Shown) -> None:
    """The shares, the first class on top."""
    clients, classes = shown.shares.shape
    axes.imshow(
        shown.shares.T,
        cmap=style.SHADES,
        norm=NORM,
        aspect="auto",
        interpolation="none",
        extent=(0.5, clients + 0.5, classes - 0.5, -0.5),
    )
    _scale(axes, shown)
    axes.set_xticks([])
    if clients <= MOST_NAMES:
        canvas.name_clients(axes, shown.clients, first=1)
    axes.yaxis.set_major_locator(_ticks())
    if 0 < len(shown.classes) <= MOST_NAMES:
        axes.set_yticks(range(classes), canvas.short(shown.classes))
    for spine in axes.spines.values():
        spine.set_visible(True)


def _scale(axes: Axes, shown: _Shown) -> None:
    axes.grid(False)
    axes.set_xlim(0.5, len(shown.shares) + 0.5)
    if shown.num_seen < len(shown.shares):
        axes.axvline(shown.num_seen + 0.5, **BOUNDARY)


def _ticks() -> MaxNLocator:
    """A few round numbers."""
    return MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True)
