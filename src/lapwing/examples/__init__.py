"""Invented data sets to try things on, and the demo of the mechanisms. `data` has their files."""
