"""The wall: every published number of all papers, in their tables, beside ours or its cost.

`cells` finds published numbers in the tables of plans and packs; `page` writes them, and draws the
ones that were run.
"""
