"""A client of a Lapwing server. It needs httpx alone."""
