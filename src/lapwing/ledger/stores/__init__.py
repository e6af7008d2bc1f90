"""The databases that hold a ledger: SQLite in a file, PostgreSQL for many servers."""
