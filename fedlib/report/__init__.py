"""From raw counts to tables and figures: metrics, selections, comparisons, output.

This package has the code that several kinds of tables and figures share. It imports results and
data frames, never PyTorch, so that a new table takes seconds.
"""
