"""Personalised federated learning: data, methods, engine and evaluation of five papers."""

__version__ = "0.1.0"
