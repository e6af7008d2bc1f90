"""Curator SQL: policy, parse, bind, check, price, run. One pass per file."""
