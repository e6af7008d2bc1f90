"""Graphical models: fit noisy marginals, answer others, draw rows. Nothing here reads private data."""
