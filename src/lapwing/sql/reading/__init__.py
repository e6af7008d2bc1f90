"""Truncated tables: coded rows up to the contribution bound, from a prepared copy or the source itself."""
