"""Figures: a module for each kind, whose `draw(given)` makes the figure."""

from fedlib.report.inputs import Inputs, loader

load = loader("figure", "draw", Inputs)
