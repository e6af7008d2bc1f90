"""Storage kit: private files, lock files, group commit, connections to SQLite and PostgreSQL."""
