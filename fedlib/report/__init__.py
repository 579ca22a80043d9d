"""From raw counts to what a table or figure shows: metrics, selections, comparisons, print.

Here belongs what several kinds of tables and figures share. It imports results and data frames,
never PyTorch, so that a new table costs seconds.
"""
