"""The public API: federations from arrays, runs without files, and what came out of them.

`fedlib` itself offers these names (`fedlib.simulate`, ...). Nothing in the workflow imports them.
"""
