"""What runs one client's computation on every client of a cohort, without knowing the algorithm.

Here belong tasks, devices, batches, solvers, executors and the cohort that a method sees. It
imports the federation and the ground modules, and never a model or a method.
"""
