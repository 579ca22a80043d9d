"""The title and look of every method, in all papers: the `look` of its class.

It is read without importing the class, so that tables and figures need no PyTorch, and an edit of a
colour repeats no training. Colours are from the palettes of Okabe and Ito and of Tol, which
colour-blind readers can distinguish; markers and dashes distinguish methods as well.
"""

from dataclasses import dataclass
from typing import Self

from fedlib.run_spec import methods

# Markers with thin shapes, which must be larger.
STARS = ("*", (4, 1, 0), (6, 1, 0), (8, 1, 0))
SOLID, DASHED, DOTTED = "-", (0, (4, 1.6)), (0, (1, 1.3))
DASHDOT, LONG = (0, (4, 1.3, 1, 1.3)), (0, (7, 1.6))
LINES = {"solid": SOLID, "dashed": DASHED, "dotted": DOTTED, "dashdot": DASHDOT, "long": LONG}


@dataclass(frozen=True)
class Look:
    """The look of a method in figures.

    Attributes:
      title: name of the method itself, as opposed to one of its runs.
    """

    color: str
    marker: str | tuple
    line: str | tuple
    width: float = 1.5
    hollow: bool = False
    title: str = ""

    @classmethod
    def of(cls, title: str, color: str, marker: str | tuple, line: str, width: float = 1.5) -> Self:
        """The look that a method's class has; `line` is one of `LINES`."""
        return cls(color, marker, LINES[line], width, title=title)

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
            "zorder": 2 if self.marker else 1.9,  # grey runs are below
        }


METHODS = {name: Look.of(*look) for name, look in methods().items()}
# Colours of papers. That of the paper's method, unless colour-blind readers would mistake it for
# another paper's: of the methods in reds and pinks only pFedMM has its own.
PAPERS = {
    "adaptive_experts": "#CC79A7",
    "fedmix": "#56B4E9",
    "fedmoe": "#882255",
    "pfedmm": METHODS["pfedmm"].color,
    "pfedmoe": METHODS["pfedmoe"].color,
}


def paper_color(paper: str) -> str:
    """The colour of a paper, wherever papers are shown beside each other; grey for a user's."""
    return PAPERS.get(paper, "#7A7A7A")
