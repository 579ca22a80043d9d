"""Estimates how long every run will take here, and its memory, before any run.

FedAvg's time for an example of the run's model is measured (`speed`), and multiplied by the run's
examples and by a factor of the method from kept trainings (`factors.csv`, which `python -m
benchmarks.factors` derives). A finished seed of the same run counts first (`estimates`).
"""
