"""Privacy reports: what an officer reads, signs and files; and one check of everything signed."""
