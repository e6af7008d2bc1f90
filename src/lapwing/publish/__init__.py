"""Publishing: synthetic tables and census tables, measured once with exact noise."""
