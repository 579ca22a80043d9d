"""Data: a source reads raw files into examples, and a partition deals them to clients.

`downloads` lists raw files, and `download` puts them in place. `sources` has a module for each data
set, `partitions` one for each kind. `build` makes a declared federation.
"""
