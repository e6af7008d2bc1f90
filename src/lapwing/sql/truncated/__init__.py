"""Bounded tables: coded and ranked rows on an engine, and the SQL that asks them."""
