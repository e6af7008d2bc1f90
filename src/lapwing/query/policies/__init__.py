"""Policies: who is protected, what is public, the budget; read from TOML, drafted from schemas."""
