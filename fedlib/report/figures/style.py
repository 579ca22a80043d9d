"""The style of all figures: one colour, marker and line per method, in all papers.

Nothing here uses `pyplot`: a figure is an object, and the settings hold only while it is drawn or
saved (`use_style`, `fedlib.report.figures.saving`).
"""

import contextlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib
from matplotlib.lines import Line2D

from fedlib.report import exhibits
from fedlib.report.looks import DASHDOT, DASHED, DOTTED, LONG, METHODS, SOLID, Look
from fedlib.run_spec import is_file
from fedlib.spec import ExhibitSpec, Run

SIZE = 8  # points of all words but the footer's, which are `SMALL`
SMALL = 7
SETTINGS = {  # that differ from Matplotlib's own
    "font.family": "DejaVu Sans",  # ships with Matplotlib, so it is the same everywhere
    "font.size": SIZE,  # which names of axes, ticks and legends have, too
    "axes.titlesize": SIZE,
    "axes.titleweight": "bold",
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.borderpad": 0,
    "legend.borderaxespad": 0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#4D4D4D",
    "xtick.color": "#4D4D4D",
    "ytick.color": "#4D4D4D",
    "xtick.labelcolor": "#262626",
    "ytick.labelcolor": "#262626",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,  # text stays text
    "savefig.dpi": 200,
    "svg.hashsalt": "fedlib",
}
MANY = 6  # with more runs in a figure, its bands are paler
CROWD = 8  # with more runs in a figure, only `STANDING` of them are in colour
STANDING = 5
GREY = "#6E6E6E"
FRAME = "#D55E00"  # of highlighted cells of a matrix
# Looks of protocols, by their keys in `fedlib.report.comparisons`; others look like methods.
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
# Colours of methods not listed above and of variants, unlike any listed colour.
SPARE = ("#004488", "#AA4466", "#661100", "#6699CC", "#DDCC77")
SPARE_MARKERS = ("o", "s", "^", "v", "D", "P", "X")
PALETTE = (  # of experts, classes and everything else but methods
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#882255", "#999933"),
    *("#332288", "#7A7A7A"),
)
WHISKER = {"ecolor": "#262626", "elinewidth": 0.9, "capsize": 2}  # of bars
SHADES = "Blues"  # of matrices, from 0 on
OTHERS = Look("#C6C6C6", "", SOLID, width=0.8)  # of runs drawn in grey


def method_look(method: str) -> Look:
    """The look of a method, by registry name or file; an unlisted one gets a spare look."""
    if method in METHODS:
        return METHODS[method]
    number = zlib.crc32(Path(method).stem.encode())  # of the name: the same in every figure
    color, marker = number % len(SPARE), number // len(SPARE) % len(SPARE_MARKERS)
    return Look(SPARE[color], SPARE_MARKERS[marker], DASHED)


def palette(number: int) -> Sequence:
    """Colours of `number` experts or the like: `PALETTE`, or as many of a map for more."""
    if number <= len(PALETTE):
        return PALETTE[:number]
    return [*map(tuple, matplotlib.colormaps["turbo"].resampled(number).colors)]


def protocol_look(key: str) -> Look:
    """The look of a protocol by its key, see `fedlib.report.comparisons`."""
    return PROTOCOLS.get(key) or method_look(key)


def variant_look(look: Look, number: int) -> Look:
    """The look of variant `number` of a protocol: solid for the first, else dashed and hollow."""
    dashes = (SOLID, DASHED, DOTTED, DASHDOT, LONG)
    width = look.width if number == 0 else 1.3
    return replace(look, line=dashes[number % len(dashes)], hollow=number > 0, width=width)


def looks(exhibit: ExhibitSpec, scores: Mapping[str, float] | None = None) -> dict[str, Look]:
    """The look of every label -> {label: Look}

    Runs of one method share its colour; all but the first have hollow markers and other dashes.
    If all runs are of one method, or there are more than dashes, they have colours of their own.

    Args:
      exhibit: see `fedlib.report.exhibits`.
      scores: {label: score}; with more than `CROWD` labels, all but `standing_out` are grey.
    """
    dashes = (DASHED, DOTTED, DASHDOT, LONG)
    first: dict[str, tuple[str, Look]] = {}
    for run in exhibit.runs:
        first.setdefault(run.label, (run.method, method_look(run.method)))
    single = len({method for method, _ in first.values()}) == 1
    found: dict[str, Look] = {}
    for label, (_, look) in first.items():
        number = [other for other, (_, theirs) in first.items() if theirs == look].index(label)
        if number:
            line = dashes[(number - 1) % len(dashes)]
            other = single or number > len(dashes)
            color = SPARE[(number - 1) % len(SPARE)] if other else look.color
            look = replace(look, color=color, line=line, hollow=True, width=1.5)
        found[label] = look
    standing = found if scores is None else standing_out(exhibit, scores)
    return {label: look if label in standing else OTHERS for label, look in found.items()}


def standing_out(exhibit: ExhibitSpec, scores: Mapping[str, float]) -> list[str]:
    """The labels drawn in colour: all, if there are up to `CROWD`, else `STANDING` of them.

    These are the first runs of the paper's own method, of every method from a user's file, of
    FedAvg and of Local, and then the runs with the highest scores, if any.
    """
    runs = {run.label: run.method for run in reversed(exhibit.runs)}
    if len(runs) <= CROWD:
        return list(runs)
    first = {method: label for label, method in runs.items()}  # of equals, the exhibit's first
    own = [method for method in first if is_file(method)]
    known = [first[m] for m in (exhibit.paper, *own, "fedavg", "local") if m in first]
    best = sorted(runs, key=lambda label: -scores.get(label, float("-inf")))
    return list(dict.fromkeys([*known, *best]))[:STANDING]


def markers(runs: Iterable[Run], label: str, points: int, count: int = 7) -> tuple[int, int]:
    """First marked point and distance between marks, for about `count` marks on `points` points.

    Runs start at different points, so that their markers do not cover one another.
    """
    labels = list(dict.fromkeys(run.label for run in runs))
    every = max(1, points // count)
    return labels.index(label) * every // len(labels), every


def band(look: Look, runs: Iterable[Run]) -> dict:
    """Keyword arguments of `Axes.fill_between`; paler where many bands may overlap."""
    many = len({run.label for run in runs}) > MANY
    alpha = 0.0 if look == OTHERS else 0.08 if many else 0.15
    return {"color": look.color, "alpha": alpha, "linewidth": 0}


@contextlib.contextmanager
def use_style() -> Iterator[None]:
    """Apply the project's settings while a block or function runs, and restore them after it."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def method_handles(exhibit: ExhibitSpec, looked: Mapping[str, Look]) -> list[Line2D]:
    """Legend entries of the exhibit's runs, in row order; grey runs share one entry."""
    handles = [
        Line2D([], [], label=title, **looked[label].curve())
        for label, title in exhibits.titles(exhibit).items()
        if looked[label] != OTHERS
    ]
    others = list(looked.values()).count(OTHERS)
    label = f"other methods ({others})"
    return handles + [Line2D([], [], label=label, **OTHERS.curve())] * (others > 0)


def others_note(exhibit: ExhibitSpec, looked: Mapping[str, Look]) -> str:
    """A note about grey runs, if there are any."""
    names = [title for label, title in exhibits.titles(exhibit).items() if looked[label] == OTHERS]
    return f"In grey: {', '.join(names)}." if names else ""


def protocol_handles(shown: Iterable, variants: Sequence[str] = ()) -> list[Line2D]:
    """Legend entries of protocols (`fedlib.report.comparisons.Protocol`), in their order.

    Those of variants follow in black, if there are several, because they hold for all protocols,
    which are solid then; one without a title is not drawn, but counts.
    """
    handles = [Line2D([], [], label=p.title, **protocol_look(p.key).curve()) for p in shown]
    if variants:
        for handle in handles:
            handle.set_linestyle(SOLID)
    if len(variants) > 1:
        plain = Look("#000000", "o", SOLID)
        told = [(variant_look(plain, number), title) for number, title in enumerate(variants)]
        handles += [Line2D([], [], label=title, **look.curve()) for look, title in told if title]
    return handles
