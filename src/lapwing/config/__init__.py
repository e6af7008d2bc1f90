"""Files that people write, in TOML: every mistake is told with its line and what to write instead."""
