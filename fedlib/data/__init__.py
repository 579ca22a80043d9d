"""Data: a source reads raw files into examples, a partition deals them to clients.

`downloads` lists raw files and `download` puts them in place; `sources` and `partitions` have a
module for each data set and kind; `build` makes the federation that a declaration names.
"""
