"""The public API: federations from arrays, runs without files, and their results.

`fedlib` itself offers these names (`fedlib.simulate`, ...). The workflow does not use them.
"""
