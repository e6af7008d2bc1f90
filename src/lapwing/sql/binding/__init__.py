"""From SQL text to a checked question, one pass per file."""
