"""Private SQL: plan a question, charge it, read bounded tables, add noise, store and answer."""
