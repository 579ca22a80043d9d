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
            return self.function("draw")(self)
