"""What makes a release: files that anybody can build again, byte for byte, and a list of their parts."""
