"""Engines: SQL in, Arrow out. Nothing in here knows about privacy."""
