"""A ledger for people to look at: its log, what is left, how that went over time."""
