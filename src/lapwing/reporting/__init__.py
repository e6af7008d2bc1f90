"""Privacy reports: what an officer reads, signs and files, and the one check of everything that is signed."""
