"""The wall: every published number of all papers, with ours beside it.

`cells` finds both; `page` writes them, and draws those that were run.
"""
