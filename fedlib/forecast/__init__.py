"""What training and evaluating every run will cost here, before any of it is done.

A *rehearsal* finds out what a run does: how many operations it takes for each example of each
client. A *forecast* is what that costs on this machine: the rehearsed operations times the examples
of the federation (`fedlib.data.sizes`), over the operations that the machine does in a second.

Nothing is trained and no data are read. `estimating` does all of it and `costs` the arithmetic.
`estimates` reads the result, `cells` adds it up by run, table and figure, and `budget` chooses
runs by it. `estimates`, `cells` and `requests` need the standard library only, because the plan and
the rules import them.
"""
