"""Layers that several architectures share and that PyTorch lacks or computes differently.

These are dropout and noise from the batch's key, augmentation, and fast convolutions for a CPU.
From the engine they import only `engine.ambient`, the state of the running batch.
"""
