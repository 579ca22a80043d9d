"""Figures: a module for each kind, whose `draw(given)` makes the figure."""

from matplotlib.figure import Figure

from fedlib.report.figures import style
from fedlib.report.inputs import Inputs


class FigureInputs(Inputs):
    """The inputs of a figure."""

    stage = "figure"

    def make(self) -> Figure:
        """The figure, in the project's style."""
        with style.use_style():
            draw = getattr(self.module, "draw", None) or getattr(self.module, self.kind.kind)
            return draw(self)
