"""What is wrong with the words of a figure as it is saved."""

from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from fedlib.report.figures import saving

SLACK = 1.5  # pixels by which boxes may touch; letters do not fill theirs


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
    return (
        box.x0 < whole.x0 - SLACK
        or box.y0 < whole.y0 - SLACK
        or box.x1 > whole.x1 + SLACK
        or box.y1 > whole.y1 + SLACK
    )


def _overlap(a: Bbox, b: Bbox) -> bool:
    width = min(a.x1, b.x1) - max(a.x0, b.x0)
    height = min(a.y1, b.y1) - max(a.y0, b.y0)
    return width > SLACK and height > SLACK
