"""Synthetic tables: which marginals to measure, with which noise. Only released numbers are seen here."""
