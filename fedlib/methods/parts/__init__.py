"""Parts that several methods share, one file each: gates, class means, early stopping, ...

A part is a step that a paper's algorithm box names but does not define. Parts import no methods,
so an edit of a part re-runs only the methods that use it.
"""
