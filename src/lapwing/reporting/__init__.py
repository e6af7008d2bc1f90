"""Privacy reports: what an officer reads, signs and files."""
