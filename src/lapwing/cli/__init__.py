"""The command line: options, and how results look. Nothing is computed here."""
