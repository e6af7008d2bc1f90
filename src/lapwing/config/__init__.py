"""Configuration files in TOML: every mistake is reported with its line and how to correct it."""
