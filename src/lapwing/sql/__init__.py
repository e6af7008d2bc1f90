"""Private SQL: plan a query, charge it, read truncated tables, add noise, store and answer."""
