"""What happens in one training or evaluation job, from its specification to its files.

Here belong building a method from JSON, rounds, checkpoints, progress, scores, calibration and
measured cost. It imports the engine, models and methods, and nothing of what comes after a run.
"""
