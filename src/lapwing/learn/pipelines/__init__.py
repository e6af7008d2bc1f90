"""Pipelines: train, validate, and try again with more data or ε until a model is shown to be good."""
