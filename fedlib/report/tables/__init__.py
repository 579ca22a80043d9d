"""Tables: a module for each kind, or for several grids, whose `build(given)` makes the `Sheet`."""
