"""The wall: every published number of all papers, in their tables, beside ours or what it costs.

`cells` finds them in the tables that a plan declares and in those of packs, `page` writes them down
and `picture` draws those that were run.
"""
