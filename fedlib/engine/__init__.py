"""The engine: runs one client's computation on every client of a cohort, whatever the algorithm.

It has tasks, devices, batches, solvers, executors and the cohort that a method sees. It imports the
federation and the ground modules, and never a model or a method.
"""
