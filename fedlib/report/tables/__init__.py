"""Tables: a module for each kind, whose `build(given)` makes the `Sheet`."""

from fedlib.report.inputs import loader
from fedlib.report.tables.sheets import TableInputs

load = loader("table", "build", TableInputs)
