"""What a figure shows, and what is wrong with its words as it is saved."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Tick
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator
from matplotlib.transforms import Bbox

from fedlib.report.figures import saving

SLACK = 1.5  # pixels by which boxes may touch; letters do not fill theirs


def described(figure: Figure) -> str:
    """Every artist of a figure that is not laid out yet: words, numbers to six digits, looks."""
    ticks = {part for tick in figure.findobj(Tick) for part in tick.findobj()}
    artists = [artist for artist in figure.findobj() if artist not in ticks]
    return "\n".join(
        f"{type(artist).__name__} {name} {_plain(value)}"
        for artist in artists
        for name, value in _properties(artist)
    )


def _properties(artist: Artist) -> Iterator[tuple[str, object]]:
    """What can be said of an artist without knowing where it will stand."""
    match artist:
        case Axes():
            names = ("xlim", "ylim", "xscale", "yscale")
            for axis in (artist.xaxis, artist.yaxis):
                if isinstance(axis.get_major_locator(), FixedLocator):
                    yield "ticks", axis.get_majorticklocs()
                    yield "words", [label.get_text() for label in axis.get_majorticklabels()]
        case Text():
            names = ("text", "color", "fontsize", "rotation", "visible")
        case Line2D():
            names = ("xydata", "color", "linestyle", "linewidth", "alpha")
            names += ("marker", "markerfacecolor", "markevery", "visible", "zorder")
        case Collection():
            names = ("offsets", "facecolor", "edgecolor", "linewidth", "linestyle", "alpha")
            for path in artist.get_paths():
                yield "path", path.vertices
        case Patch():
            names = ("facecolor", "edgecolor", "linewidth", "hatch", "alpha")
            yield "path", artist.get_patch_transform().transform(artist.get_path().vertices)
        case AxesImage():
            names = ("array", "clim", "extent")
            yield "colours", artist.get_cmap()([0.0, 0.5, 1.0])
        case _:
            names = ()
    for name in names:
        yield name, getattr(artist, f"get_{name}")()


def _plain(value: object) -> str:
    """A value as text, numbers to six digits."""
    if isinstance(value, list | tuple) or np.ndim(value):
        return f"[{' '.join(map(_plain, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def faults(figure: Figure, fitted: bool = True) -> list[str]:
    """Words that leave the figure, or lie on others, once it is laid out as `saving.save` does."""
    if fitted:
        saving.fit(figure)
    figure.draw_without_rendering()
    boxes = [(text.get_text(), text.get_window_extent()) for text in _words(figure)]
    outside = [f"{words!r} leaves the figure" for words, box in boxes if _leaves(box, figure.bbox)]
    return outside + [
        f"{one!r} lies on {other!r}"
        for (one, a), (other, b) in combinations(boxes, 2)
        if _overlap(a, b)
    ]


def _words(figure: Figure) -> list[Text]:
    kept = {label for axes in figure.axes for label in _labels_of_hidden_ticks(axes)}
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    return [text for text in found if text not in kept]


def _labels_of_hidden_ticks(axes: Axes) -> list[Text]:
    """Labels of ticks beyond the ends of an axis, which Matplotlib keeps but does not draw."""
    labels = []
    for axis in (axes.xaxis, axes.yaxis):
        drawn = axis._update_ticks()
        ticks = {*axis.get_major_ticks(), *axis.get_minor_ticks()} - {*drawn}
        labels += [label for tick in ticks for label in (tick.label1, tick.label2)]
    return labels


def _leaves(box: Bbox, whole: Bbox) -> bool:
    inside = Bbox.intersection(box, whole.padded(SLACK))
    return inside is None or bool((inside.extents != box.extents).any())


def _overlap(a: Bbox, b: Bbox) -> bool:
    both = Bbox.intersection(a, b)
    return both is not None and min(both.size) > SLACK
