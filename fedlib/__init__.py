"""Personalised federated learning: data, methods, engine and evaluation of five papers."""
