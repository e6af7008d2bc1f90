"""The data sets that are served: one curator each, plans, releases, budgets and records."""
