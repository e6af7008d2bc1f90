"""Storage kit: private files, lock files, group commit, PostgreSQL connections."""
