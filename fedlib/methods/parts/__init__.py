"""Parts that several methods are made of, one file each: gates, exploration, early stopping, ...

Here belongs what a paper's algorithm box names but does not define. A part never imports a
method, so that editing one re-runs the methods that use it and no other.
"""
