"""Tables: a module for each kind, whose `build(given)` makes the `Sheet`, or for several grids.

A module of several kinds has a function for each, which is called as the kind.
"""
