"""One training, tuning or evaluation job, from its specification to its files.

This package builds methods from JSON, and has rounds, checkpoints, progress, scores and
measured cost. It imports the engine, models and methods, and nothing of later stages.
"""
