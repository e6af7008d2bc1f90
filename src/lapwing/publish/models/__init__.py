"""Graphical models: fit noisy marginals, answer other marginals, draw rows. Nothing here reads private data."""
