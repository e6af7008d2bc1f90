"""Answers: from noisy numbers to estimates with intervals, in words, tables and stored bytes."""
