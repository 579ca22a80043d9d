"""The wall: every published number of all papers, with ours beside it.

`pairs` finds both; `page` writes them, and draws those that were run.
"""
