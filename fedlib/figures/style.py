"""How every figure looks: one colour, marker and line per method, in all papers.

Nothing here touches `pyplot`: a figure is an object, and the settings hold only while it is drawn
or saved (`styled`, `fedlib.figures.saving`). Colours are from the palettes of Okabe and Ito and of
Tol, which colour-blind readers can tell apart; markers and dashes say the same once more.
"""

import functools
import textwrap
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedlib.exhibits import selection as exhibits

SETTINGS = {
    "font.family": "DejaVu Sans",  # ships with Matplotlib, so it is the same everywhere
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "figure.titlesize": 11.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#4D4D4D",
    "axes.linewidth": 0.8,
    "xtick.color": "#4D4D4D",
    "ytick.color": "#4D4D4D",
    "xtick.labelcolor": "#262626",
    "ytick.labelcolor": "#262626",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,  # text stays text
    "savefig.dpi": 200,
    "figure.dpi": 100,
    "svg.hashsalt": "fedlib",
}
PANEL_WIDTH, PANEL_HEIGHT = 3.35, 2.75  # inches
BESIDE = 1.55  # inches right of the panels, for a scale of colours; a legend takes what it needs
LEGEND_PAD = 0.1  # inches
MAX_COLUMNS = 3
MANY = 6  # runs in a figure, from which on its bands are paler
CROWDED = 400  # clients in a panel: with more of them, a bar of each is thinner than a pixel
GREY = "#6E6E6E"
# Markers with so little in the middle that they must be larger.
STARS = ("*", (4, 1, 0), (6, 1, 0), (8, 1, 0))
SOLID, DASHED, DOTTED = "-", (0, (4, 1.6)), (0, (1, 1.3))
DASHDOT, LONG = (0, (4, 1.3, 1, 1.3)), (0, (7, 1.6))


@dataclass(frozen=True)
class Look:
    """How a method is drawn."""

    color: str
    marker: str | tuple
    line: str | tuple
    width: float = 1.5
    hollow: bool = False

    def curve(self) -> dict:
        """Keyword arguments of `Axes.plot` for a line with markers."""
        face = "white" if self.hollow else self.color
        return {
            "color": self.color,
            "linestyle": self.line,
            "linewidth": self.width,
            "marker": self.marker,
            "markerfacecolor": face,
            "markeredgecolor": self.color if self.hollow else "white",
            "markeredgewidth": 0.9 if self.hollow else 0.5,
            "markersize": 7 if self.marker in STARS else 4.8,
        }


METHODS = {
    "local": Look("#7A7A7A", "v", DOTTED),
    "fedavg": Look("#000000", "o", SOLID),
    "fedprox": Look("#999933", "s", DASHED),
    "fedavg_plus": Look("#E69F00", "P", DASHDOT),
    "clustered": Look("#56B4E9", "D", LONG),
    "ifca": Look("#2255AA", "H", SOLID),
    "adaptive_experts": Look("#CC3377", (4, 1, 0), SOLID, width=2.1),
    "local_experts": Look("#9C8F6B", (12, 0, 0), DOTTED),
    "pfedme": Look("#009E73", "^", DASHED),
    "pfedme_moreau": Look("#117733", "8", DASHDOT),
    "l2sgd": Look("#882255", "<", DASHDOT),
    "apfl": Look("#44AA99", ">", LONG),
    "qffl": Look("#332288", "h", DASHED),
    "afl": Look("#AA4499", "d", DOTTED),
    "fedem": Look("#0072B2", "X", SOLID),
    "gated_experts": Look("#CC79A7", "p", DASHDOT),
    "pfedmm": Look("#D55E00", "*", SOLID, width=2.1),
    "fedavg_adam": Look("#1A1A1A", (16, 0, 0), SOLID),
    "biased_fedavg": Look("#0077BB", (4, 0, 20), LONG),
    "local_global": Look("#C9A227", (5, 0, 36), DASHDOT),
    "fedmix": Look("#CC3311", (6, 1, 0), SOLID, width=2.1),
    "fedmix_clients": Look("#33BBEE", (3, 0, 0), SOLID),
    "fedmix_vae": Look("#EE7733", (6, 0, 0), DASHED),
    "plain_mixture": Look("#AA7744", (3, 0, 180), DASHDOT),
    "label_leakage": Look("#4B4B8F", (7, 0, 0), DOTTED),
    "pfedmoe": Look("#6A3D9A", (8, 1, 0), SOLID, width=2.1),
    "lg_fedavg": Look("#B8860B", (4, 0, 10), DASHDOT),
    "fedrep": Look("#5F9EA0", (8, 0, 0), LONG),
    "fd": Look("#8C564B", (3, 0, 90), DOTTED),
    "fedproto": Look("#1B9E77", (6, 0, 30), DASHED),
    "fedgh": Look("#A6761D", (3, 0, 270), LONG),
    "fedtgp": Look("#66A61E", (5, 0, 0), DASHDOT),
    "fml": Look("#5E8C31", (3, 1, 0), DASHED),
    "fedkd": Look("#B07AA1", (5, 1, 0), DASHDOT),
    "fedapen": Look("#8C510A", (7, 1, 0), LONG),
    "uniform_mixture": Look("#D98CB3", (8, 0, 22), DASHED),
    "server_finetuning": Look("#6B8E23", (10, 0, 0), LONG),
    "centmoe": Look("#5E6B73", (9, 0, 0), DASHED),
    "fedjets": Look("#3F7FBF", (7, 0, 26), LONG),
    "ensemble": Look("#8F7A3E", (5, 1, 36), DOTTED),
    "fedrolex": Look("#7D5BA6", (10, 1, 0), DASHED),
    "moe_fedavg": Look("#2E8B8B", (4, 1, 45), DASHDOT),
    "fedmoe": Look("#B8336A", (9, 1, 0), SOLID, width=2.1),
}
VARIANTS = {  # of methods with a flag set, which stand beside the method and must not look like it
    ("fedmix", "private_bias"): Look("#762A83", (4, 0, 65), DASHED),
}
# Of one training, by their keys in `fedlib.exhibits.comparisons`; others look like methods.
PROTOCOLS = {
    "moe": METHODS["adaptive_experts"],
    "moe_gate": Look("#E39BBD", "d", DASHED),
    "moe_joint": Look("#882266", "d", DASHED),
    "ifca": METHODS["ifca"],
    "ensemble": Look("#DDAA33", "s", DASHDOT),
    "finetuned": Look("#009988", "^", DASHED),
    "new_shard": Look("#EE3377", "D", DASHED),
    "new_shard_vae": Look("#AA9955", "P", DOTTED),
    "local": METHODS["local"],
}
# Of methods not listed above; unlike the colours of those.
SPARE = ("#004488", "#AA4466", "#661100", "#6699CC", "#DDCC77")
SPARE_MARKERS = ("o", "s", "^", "v", "D", "P", "X")
EXPERTS = (
    *("#4477AA", "#EE8866", "#BBCC33", "#99DDFF", "#AA4499", "#EEDD88", "#44BB99", "#FFAABB"),
    *("#AAAA00", "#BBBBBB"),
)


def method_look(method: str) -> Look:
    """The look of a method, by registry name or file; an unlisted one gets a spare of its own."""
    if method in METHODS:
        return METHODS[method]
    number = zlib.crc32(Path(method).stem.encode())  # by its name: the same in every figure
    color, marker = number % len(SPARE), number // len(SPARE) % len(SPARE_MARKERS)
    return Look(SPARE[color], SPARE_MARKERS[marker], DASHED)


def protocol_look(key: str) -> Look:
    """The look of a protocol by its key, see `fedlib.exhibits.comparisons`."""
    return PROTOCOLS.get(key) or method_look(key)


def variant_look(look: Look, number: int) -> Look:
    """A look as it is for the first variant of a protocol: solid; later ones dashed and hollow."""
    dashes = (SOLID, DASHED, DOTTED, DASHDOT, LONG)
    width = look.width if number == 0 else 1.3
    return replace(look, line=dashes[number % len(dashes)], hollow=number > 0, width=width)


def looks(runs: Iterable[dict], shaded: str | None = None) -> dict[str, Look]:
    """The look of every label -> {label: Look}

    Runs of one method share its colour; all but the first have hollow markers and other dashes.

    Args:
      runs: as `fedlib.spec.Run.describe` has them, in row order.
      shaded: registry name of a method whose runs are shades of its colour instead, from light to
        dark in row order, for sweeps with more runs than there are dashes.
    """
    dashes = (DASHED, DOTTED, DASHDOT, LONG)
    first: dict[str, tuple[str, Look]] = {}
    for run in runs:
        first.setdefault(run["label"], (run["method"], _run_look(run)))
    found: dict[str, Look] = {}
    for label, (method, look) in first.items():
        alike = [other for other, (_, theirs) in first.items() if theirs == look]
        number = alike.index(label)
        if method == shaded and len(alike) > 1:
            found[label] = shade(look, number, len(alike))
        elif number:
            line = dashes[(number - 1) % len(dashes)]
            found[label] = replace(look, line=line, hollow=True, width=1.5)
        else:
            found[label] = look
    return found


def shade(look: Look, number: int, count: int) -> Look:
    """Shade `number` of `count` of a look's colour, from light to dark; every other is dashed."""
    share = 1.25 * number / (count - 1) - 0.65  # of white if negative, of black if positive
    target = 1.0 if share < 0 else 0.0
    mixed = [value + abs(share) * (target - value) for value in to_rgb(look.color)]
    line = DASHED if number % 2 else SOLID
    return replace(look, color=to_hex(mixed).upper(), line=line, hollow=number % 2 > 0, width=1.5)


def _run_look(run: dict) -> Look:
    """The look of a run's method, or of the method's variant that it is."""
    for (method, flag), look in VARIANTS.items():
        if run["method"] == method and run["params"].get(flag):
            return look
    return method_look(run["method"])


def markers(runs: Iterable[dict], label: str, points: int, count: int = 7) -> tuple[int, int]:
    """First marked point and distance of the marks, about `count`, on a run's curve of `points`.

    Runs start at different points, so that their markers do not cover one another.
    """
    labels = list(dict.fromkeys(run["label"] for run in runs))
    every = max(1, points // count)
    return labels.index(label) * every // len(labels), every


def band(look: Look, runs: Iterable[dict]) -> dict:
    """Keyword arguments of `Axes.fill_between`; paler where many bands may lie on one another."""
    many = len({run["label"] for run in runs}) > MANY
    return {"color": look.color, "alpha": 0.08 if many else 0.15, "linewidth": 0}


def styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """`draw`, with the project's settings in force while it runs and no others after."""

    @functools.wraps(draw)
    def drawn(*args, **kwargs) -> Figure:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(SETTINGS)
            return draw(*args, **kwargs)

    return drawn


def panels(
    exhibit: dict,
    count: int | None = None,
    columns: int | None = None,
    height: float = PANEL_HEIGHT,
    width: float = PANEL_WIDTH,
) -> tuple[Figure, list[Axes]]:
    """A figure with the exhibit's title and `count` panels, in reading order.

    Args:
      exhibit: whose title it is.
      count: one per federation if not given.
      columns: panels side by side; up to `MAX_COLUMNS` if not given.
      height, width: of a panel, in inches.
    """
    count = len(exhibit["federations"]) if count is None else count
    columns = columns or (2 if count == 4 else min(count, MAX_COLUMNS))
    rows = -(-count // columns)
    size = (width * columns + BESIDE, height * rows + 0.75)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06, wspace=0.04, hspace=0.05)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for spare in grid[count:]:
        spare.remove()
    title = textwrap.fill(exhibit["title"], int((size[0] - BESIDE) * 10.5))
    figure.suptitle(title, x=0.012, ha="left", fontweight="bold")
    return figure, list(grid[:count])


def legend(figure: Figure, handles: list) -> None:
    """The figure's legend, right of the panels, where it covers nothing; the figure grows."""
    if not handles:
        return
    drawn = figure.legend(handles=handles, loc="outside right upper")
    width, height = _inches(figure, drawn)
    figure.set_figwidth(figure.get_figwidth() - BESIDE + width + LEGEND_PAD)
    figure.set_figheight(max(figure.get_figheight(), height + LEGEND_PAD))


def _inches(figure: Figure, artist: Artist) -> tuple[float, float]:
    """Width and height of something in a figure."""
    box = artist.get_window_extent(figure.canvas.get_renderer())
    return box.width / figure.dpi, box.height / figure.dpi


def method_handles(
    exhibit: dict, labels: Iterable[str] | None = None, shaded: str | None = None
) -> list[Line2D]:
    """Legend entries of the exhibit's runs, in row order; only of `labels` where given."""
    looked, wanted = looks(exhibit["runs"], shaded), None if labels is None else set(labels)
    return [
        Line2D([], [], label=title, **looked[label].curve())
        for label, title in exhibits.titles(exhibit).items()
        if wanted is None or label in wanted
    ]


def protocol_handles(shown: Iterable) -> list[Line2D]:
    """Legend entries of protocols (`fedlib.exhibits.comparisons.Shown`), in their order."""
    return [Line2D([], [], label=p.title, **protocol_look(p.key).curve()) for p in shown]


def variant_handles(titles: list[str]) -> list[Line2D]:
    """Legend entries of variants, in black, which is no protocol's, as they mean all of them."""
    plain = Look("#000000", "o", SOLID)
    return [
        Line2D([], [], label=title, **variant_look(plain, number).curve())
        for number, title in enumerate(titles)
    ]


def footer(figure: Figure, exhibit: dict, *sentences: str) -> None:
    """Small grey lines under the panels: scale, seeds and whatever the reader must know."""
    seeds = exhibits.seeds_text(exhibit).replace(" ", "\N{NO-BREAK SPACE}", 2)  # "1 seed (0)"
    parts = [exhibits.scale_text(exhibit), f"{seeds}.", *sentences]
    text = " ".join(part for part in parts if part)
    beside = _inches(figure, figure.legends[0])[0] if figure.legends else BESIDE
    width = int((figure.get_figwidth() - beside) * 21)  # characters that fit at this size
    lines = "\n".join(textwrap.wrap(text, width))
    figure.supxlabel(lines, x=0.012, ha="left", fontsize=7, color=GREY, linespacing=1.35)


def spread_text(exhibit: dict, what: str) -> str:
    """What the band or bar around a mean shows, if there is more than one seed."""
    if len(exhibit["seeds"]) == 1:
        return ""
    return f"Mean over seeds; {what} from the smallest to the largest seed."


def percent_axis(axes: Axes) -> None:
    """Show the fractions of the y axis as percent, at round numbers."""
    axes.yaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}")
