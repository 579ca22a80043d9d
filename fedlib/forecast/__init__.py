"""Estimates the cost of training and evaluating every run on this machine, before any run.

A *rehearsal* counts the operations of a run, for each example of each client. A *forecast* is the
cost on this machine: the rehearsed operations times the examples of the federation
(`fedlib.data.sizes`), divided by the operations that the machine does in a second.

No run is trained and no data are read. `estimating` does all of it and `costs` the arithmetic.
`estimates` reads the result, and `cells` adds it up by run, table and figure and chooses runs.
These two need the standard library only, because the plan and the rules import them.
"""
