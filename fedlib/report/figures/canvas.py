"""The layout of a figure's panels, legend and footer: all figures have one width and type size.

A figure contains no title: every page that shows a figure has the title above it.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from fedlib.errors import plain
from fedlib.report import notes
from fedlib.report.figures import style
from fedlib.report.printed import to_percent
from fedlib.spec import Data, ExhibitSpec

WIDTH = 7.2  # inches, for every figure, so that type looks equally large in all of them
HEIGHTS = {1: 2.3, 2: 2.1}  # inches of a row, by the number of panels in it
LOW = 1.9  # inches of rows of more panels
PAD = 0.06  # inches
BESIDE = 0.3  # widest legend beside the panels, as a share of the figure's width
MAX_COLUMNS = 3
NAMED = 12  # clients with a name below a panel
FOOTER = 160  # most characters in a line of the footer
SPAN = 0.05  # least length of an axis of accuracies, so that flat curves look flat


def panels(
    titles: Sequence[str | None],
    xlabel: str = "",
    ylabel: str = "",
    *,
    columns: int | None = None,
    height: float | None = None,
) -> tuple[Figure, list[Axes]]:
    """A figure with a panel per title, in reading order; a gap where a title is None.

    Axes are named below the lowest panel of a column and beside the first of a row.

    Args:
      titles: one per panel.
      xlabel, ylabel: names of the axes, where all panels share them.
      columns: panels side by side (default: up to `MAX_COLUMNS`).
      height: of a row, in inches (default: `HEIGHTS`).
    """
    columns = columns or (2 if len(titles) == 4 else min(len(titles), MAX_COLUMNS))
    rows = -(-len(titles) // columns)
    size = WIDTH, (height or HEIGHTS.get(columns, LOW)) * rows
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=PAD, h_pad=PAD, wspace=0.02, hspace=0.02)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    there = [place for place, title in enumerate(titles) if title is not None]
    for place, axes in enumerate(grid):
        if place not in there:
            axes.remove()
            continue
        lowest = not any(place + below in there for below in range(columns, len(grid), columns))
        axes.set(title=titles[place], xlabel=xlabel if lowest else "")
        axes.set_ylabel("" if place % columns else ylabel)
    return figure, [grid[place] for place in there]


def by_federation(
    exhibit: ExhibitSpec, xlabel: str, ylabel: str
) -> tuple[Figure, list[tuple[Axes, Data]]]:
    """`panels` for an exhibit's federations, each panel with its federation."""
    figure, grid = panels([one.title for one in exhibit.federations], xlabel, ylabel)
    return figure, list(zip(grid, exhibit.federations, strict=True))


def finish(figure: Figure, exhibit: ExhibitSpec, handles: list, *sentences: str) -> Figure:
    """The figure with its legend, and a small grey footer: scale, seeds and `sentences`.

    A small legend stands beside panels that form one column, any other legend below the panels.
    The figure grows in height alone.
    """
    high, wide = figure.get_figheight(), WIDTH
    below = 0.0
    drawn, beside = _legend(figure, handles)
    if drawn:
        width, legend_height = _inches(figure, drawn)
        wide -= (width + 3 * PAD) * beside
        below = 0.0 if beside else legend_height + 2 * PAD
    written = _footer(figure, exhibit, *sentences)
    under = _inches(figure, written)[1] + 2 * PAD
    whole = high + below + under
    figure.set_figheight(whole)
    figure.get_layout_engine().set(rect=(0, (under + below) / whole, wide / WIDTH, high / whole))
    written.set_position((PAD / WIDTH, PAD / whole))
    if drawn:
        top = whole - PAD if beside else under + below - PAD
        drawn.set_bbox_to_anchor(((wide if beside else PAD) / WIDTH, top / whole))
    return figure


def _legend(figure: Figure, handles: list) -> tuple[Legend | None, bool]:
    """The legend, not yet placed, and whether it fits beside the panels."""
    if not handles:
        return None, False
    drawn = figure.legend(handles=handles, loc="upper left")
    width, height = _inches(figure, drawn)
    places = [axes.get_subplotspec() for axes in figure.axes]  # None for a colour bar
    stacked = {place.colspan.start for place in places if place} == {0}
    if stacked and width <= BESIDE * WIDTH and height <= figure.get_figheight() - PAD:
        return drawn, True
    for rows in range(1, len(handles) + 1):
        drawn.remove()
        drawn = figure.legend(handles=handles, loc="upper left", ncols=-(-len(handles) // rows))
        if _inches(figure, drawn)[0] <= WIDTH - 2 * PAD:
            break
    return drawn, False


def _footer(figure: Figure, exhibit: ExhibitSpec, *sentences: str) -> Text:
    """Small grey lines, as wide as the figure."""
    seeds = notes.seeds(exhibit).replace(" ", "\N{NO-BREAK SPACE}", 2)  # "1 seed (0)"
    scale = notes.scale(exhibit.scale, exhibit.scale_note, exhibit.folder_note)
    words = " ".join(filter(None, [scale, *notes.sources(exhibit), f"{seeds}.", *sentences]))
    words = re.sub(r"= (\d+\.\d{5,})", lambda found: f"≈ {float(found[1]):.4g}", words)
    text = figure.supxlabel("", x=0, y=0, ha="left", va="bottom", fontsize=style.SMALL)
    text.set(color=style.GREY, linespacing=1.25, in_layout=False)
    for characters in range(FOOTER, 0, -4):
        text.set_text("\n".join(textwrap.wrap(words, characters)))
        if _inches(figure, text)[0] <= WIDTH - 2 * PAD:
            break
    return text


def _inches(figure: Figure, artist: Artist) -> tuple[float, float]:
    """Width and height of an artist in a figure."""
    box = artist.get_window_extent(figure.canvas.get_renderer())
    return box.width / figure.dpi, box.height / figure.dpi


def first_seed_note(exhibit: ExhibitSpec, why: str = "") -> str:
    """A note that only the first seed is shown, and why; empty if there is one seed."""
    if len(exhibit.seeds) == 1:
        return ""
    return f"Seed {exhibit.seeds[0]} only{': ' * bool(why)}{why}."


def by_run(exhibit: ExhibitSpec) -> list[str]:
    """A title for each of an exhibit's runs: "FedAvg, EMNIST"."""
    where = {federation.name: federation.title for federation in exhibit.federations}
    return [f"{run.title}, {where[run.federation]}" for run in exhibit.runs]


def spread_text(exhibit: ExhibitSpec, what: str) -> str:
    """The meaning of the band or bar around a mean, if there is more than one seed."""
    if len(exhibit.seeds) == 1:
        return ""
    return f"Mean over seeds; {what} from the smallest to the largest seed."


def number(value: float, form: str = ".4g") -> str:
    """A number with a proper minus sign, and none if it rounds to zero; halves as in tables."""
    if form.endswith("f"):
        value = to_percent(value / 100, int(form[-2]))
    sign = "+" * form.startswith("+")
    return f"{value:{sign}z{form.removeprefix('+')}}".replace("-", "\N{MINUS SIGN}")


def percent_axis(axes: Axes) -> None:
    """Show fractions on the y axis as percent, with round ticks, over at least `SPAN`."""
    low, high = axes.get_ylim()
    missing = max(0.0, SPAN - (high - low))
    top = min(high + missing / 2, max(high, 1.005))  # no accuracy is above 1
    axes.set_ylim(top - missing - (high - low), top)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(lambda value, _: number(100 * value))


def rounds_axis(axes: Axes) -> None:
    """Ticks of the x axis at whole rounds."""
    axes.margins(x=0.015)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True))


def name_clients(axes: Axes, names: list[str]) -> None:
    """Name up to about `NAMED` of the clients, which stand side by side."""
    every = -(-len(names) // NAMED)
    upright = any(len(x) > 3 for x in names[::every])
    axes.set_xticks(range(0, len(names), every), short(names[::every]), rotation=90 * upright)


def short(names: Iterable[str]) -> list[str]:
    """Names that a user gave, as they fit beside an axis; none is read as a formula.

    Control characters are spelt out, as SVG cannot have them.
    """
    return [(x if len(x) <= 20 else f"{x[:19]}…").replace("$", r"\$") for x in map(plain, names)]
