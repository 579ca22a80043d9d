"""Layers that several architectures share, and that PyTorch lacks or computes otherwise.

Here belong dropout and noise with keys of their own, augmentation, and convolutions laid out for
a CPU. They import of the engine what it tells the code that it runs (`engine.ambient`), no more.
"""
